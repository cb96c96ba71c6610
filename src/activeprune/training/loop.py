"""The training loop: one training, or several of one shape side by side."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InputError, whole
from ..core.masks import Masks
from ..core.randomness import torchs_own
from ..data import Feed
from ..machine import device as usable_device
from .course import Course
from .engine import Eager, Engine
from .probe import Probe
from .result import Checkpoint, Epoch, ForeignCheckpoint, Result
from .schedules import learning_rates
from .settings import Training

AfterEpoch = Callable[[Epoch, Callable[[], Checkpoint]], None]


@dataclass(frozen=True, eq=False)
class Entry:
    """One of several trainings of one shape: what distinguishes it from the others.

    `after_epoch(record, checkpoint)` is called between its epochs; what `checkpoint()` returns there lets another call
    `resume` with no effect on the result. What a `probe` sees on the way is in the result.
    """

    feed: Feed  # of its seed
    start: Mapping[str, Tensor]
    masks: Masks | None = None
    resume: Checkpoint | None = None
    after_epoch: AfterEpoch | None = None
    probe: Probe | None = None

    def expect(self, first: int) -> None:
        """Begins to draw for its first epoch: `first`, or the one that its checkpoint stands before."""
        self.feed.expect(first if self.resume is None else self.resume.epoch)


def train(
    training: Training,
    seed: int,
    start: Mapping[str, Tensor],
    masks: Masks | None = None,
    *,
    first: int = 0,
    last: int | None = None,
    resume: Checkpoint | None = None,
    after_epoch: AfterEpoch | None = None,
    feed: Feed | None = None,
    device: str | torch.device = "cpu",
    workers: int = 0,
) -> Result:
    """Trains from `start` under `masks`: a function of its first four arguments, to the bit on one CPU.

    `first` and `last` bound the epochs: a training that starts at the state of a later epoch takes schedule and data
    from there on. `after_epoch(record, checkpoint)` is called between epochs; what `checkpoint()` returns there lets
    another call `resume` with no effect on the result. `feed` may be given where it is at hand already; `device` and
    `workers` (processes that decode files) change no result beyond rounding.

    >>> training = Training(network="resnet8", data={"name": "digits", "limit": 100}, lr=0.1, epochs="1ep", batch=30)
    >>> start = training.build(num_classes=10, channels=1, seed=0).state_dict()
    >>> result = train(training, 0, start)
    >>> [epoch.step for epoch in result.epochs], result.failure
    ([3], None)
    """
    began = time.perf_counter()
    place = usable_device(str(device))
    feed = feed or training.feed(seed, str(place), workers)
    _check_feed(feed, training, seed, place)
    entry = Entry(feed, start, masks, resume, after_epoch)
    (result,) = train_together(training, [entry], Eager(training, place), first=first, last=last, began=began)
    return result


def train_together(
    training: Training,
    entries: Sequence[Entry],
    engine: Engine,
    *,
    first: int = 0,
    last: int | None = None,
    began: float | None = None,
) -> list[Result]:
    """Trains several networks side by side; each gets the result that it would get alone.

    Their epochs begin and end together unless some resume in the middle. One that fails leaves, and the others go on.
    The seconds of a result are its share of the time since `began`.
    """
    clock = _Clock(time.perf_counter() if began is None else began, len(entries))
    steps = entries[0].feed.steps
    total = training.epochs.steps(steps)
    first, last, end = _epochs(total, steps, first, last)
    with torch.inference_mode(False), torch.enable_grad(), _reproducible(engine.device):
        courses = [_course(training, entry, engine, first, last) for entry in entries]
        running = [course for course in courses if course.epoch < last]
        for course in courses:
            if last < end and course not in running:
                course.keep()
        after = {id(course): entry.after_epoch for course, entry in zip(courses, entries, strict=True)}
        images, busy = 0, 0.0
        for course in running:
            course.begin()
        while running:
            since = time.perf_counter()
            count = min(course.ahead for course in running)
            engine.run([course.lane for course in running], count)
            for course in running:
                course.left -= count
            ended = [course for course in running if not course.left]
            well = [course for course in ended if course.judge()]  # which waits for the device
            busy += time.perf_counter() - since
            images += count * len(running) * training.batch
            for course in running:
                if course.left:
                    course.look()
            for course, scores in zip(well, engine.score([course.lane for course in well]), strict=True):
                if course.record(scores) and course.epoch == last < end:
                    course.keep()
            clock.share(courses)
            for course in ended:
                if course.failure is None and (tell := after[id(course)]) is not None:
                    tell(course.epochs[-1], course.checkpoint)
            running = [course for course in running if course.failure is None and course.epoch < last]
            for course in running:
                if not course.left:
                    course.begin()
        clock.share(courses)
        speed = images / busy if busy else 0.0
        return [course.result(speed) for course in courses]


class _Clock:
    """Shares the time that has passed out among several."""

    def __init__(self, began: float, among: int) -> None:
        self.at, self.among = began, among

    def share(self, courses: Sequence[Course]) -> None:
        """Adds to each its part of the seconds since the last time."""
        now = time.perf_counter()
        for course in courses:
            course.seconds += (now - self.at) / self.among
        self.at = now


def _course(training: Training, entry: Entry, engine: Engine, first: int, last: int) -> Course:
    density = 1.0 if entry.masks is None else entry.masks.density
    rates = learning_rates(training, entry.feed.steps, density)
    lane = engine.lane(entry.feed, entry.start, entry.masks)
    of = checkpoint_identity(training, entry.feed.seed, entry.masks, first)
    if entry.resume is None:
        at = Checkpoint(first, lane.snapshot()(), {}, of=of)
    else:
        at = _checked(entry.resume, of, first, last)
        if entry.probe is not None and not was_probed(at, entry.probe, first, entry.feed.steps):
            raise ForeignCheckpoint("the checkpoint does not hold what a probe would have seen before it")
        lane.load(at.state)
        lane.load_optimizer_state(at.optimizer)
    return Course(training, lane, entry.feed, rates, at, entry.probe, first)


def was_probed(at: Checkpoint, probe: Probe, first: int, steps: int) -> bool:
    """Whether a checkpoint holds all that a probe has seen of a training that began with epoch `first`."""
    return [seen["step"] for seen in at.probed] == probe.due(first * steps, at.epoch * steps, steps)


def _epochs(steps: int, steps_per_epoch: int, first: int, last: int | None) -> tuple[int, int, int]:
    end = math.ceil(steps / steps_per_epoch)
    last = end if last is None else whole("last", last, 0)
    if not 0 <= whole("first", first, -steps) < last <= end:
        raise InputError(f"epochs {first} to {last}: this training has epochs 0 to {end}")
    return first, last, end


def _check_feed(feed: Feed, training: Training, seed: int, device: torch.device) -> None:
    for what, given, wanted in (
        ("seed", feed.seed, seed),
        ("batch", feed.batch, training.batch),
        ("augment", feed.augment, training.augment),
        ("device", feed.device.type, device.type),
    ):
        if given != wanted:
            raise InputError(f"the feed's {what} is {given}, and the training's {wanted}")


def _checked(resume: Checkpoint, of: str, first: int, last: int) -> Checkpoint:
    if resume.of != of:
        raise ForeignCheckpoint("the checkpoint is of another training: settings, seed, masks or first epoch differ")
    if not first <= resume.epoch <= last:
        raise ForeignCheckpoint(f"a checkpoint after epoch {resume.epoch} of a training from {first} to {last}")
    return resume


def checkpoint_identity(training: Training, seed: int, masks: Masks | None, first: int) -> str:
    """What must be the same for a checkpoint to fit; where the data are and where the training ends need not."""
    settings = training.model_dump_json(exclude={"data": {"path"}})
    digest = hashlib.sha256(f"{settings} {seed} {first}".encode())
    for name, mask in (masks or {}).items():
        digest.update(name.encode())
        digest.update(np.packbits(mask.cpu().numpy().reshape(-1)).tobytes())
    return digest.hexdigest()


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """Random numbers of its own, and kernels that always give the same bits."""
    forked = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with torchs_own:
        forked.__enter__()
    try:
        with same_kernels():
            yield
    finally:
        with torchs_own:  # another thread may be drawing from what is put back here
            forked.__exit__(None, None, None)


@contextmanager
def same_kernels() -> Iterator[None]:
    """On a GPU the convolutions that always give the same bits, in full float32: in every thread of this process."""
    flags = torch.backends.cudnn
    before = flags.deterministic, flags.benchmark, flags.allow_tf32
    try:
        flags.deterministic, flags.benchmark, flags.allow_tf32 = True, False, False
        yield
    finally:
        flags.deterministic, flags.benchmark, flags.allow_tf32 = before
