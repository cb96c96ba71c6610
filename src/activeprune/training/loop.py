"""The training loop: one training, or several of one shape side by side."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from ..core.errors import InputError
from ..core.masks import Masks
from ..core.randomness import everybodys_kept, torchs_own
from ..data import Feed
from .case import WHOLE, Case, Span
from .course import Course
from .engine import Eager, Engine
from .probe import Probe
from .result import Checkpoint, ForeignCheckpoint, Result
from .settings import Training


def train(training: Training, case: Case, span: Span = WHOLE) -> Result:
    """Trains one network where its feed is: a function of the training and of the case's seed, start and masks, to the
    bit on one CPU.

    >>> training = Training(network="resnet8", data={"name": "digits", "limit": 100}, lr=0.1, epochs="1ep", batch=30)
    >>> start = training.build(num_classes=10, channels=1, seed=0).state_dict()
    >>> result = train(training, Case(training.feed(seed=0), start))
    >>> [epoch.step for epoch in result.epochs], result.failure
    ([3], None)
    """
    (result,) = train_together(training, [case], Eager(training, case.feed.device), span)
    return result


def train_together(
    training: Training, cases: Sequence[Case], engine: Engine, span: Span = WHOLE, began: float | None = None
) -> list[Result]:
    """Trains several networks side by side; each gets the result that it would get alone.

    Their epochs begin and end together unless some resume in the middle. One that fails leaves, and the others go on.
    The seconds of a result are its share of the time since `began`.
    """
    clock = _Clock(time.perf_counter() if began is None else began, len(cases))
    for case in cases:
        _check_feed(case.feed, training)
    steps = cases[0].feed.steps
    end = math.ceil(training.epochs.steps(steps) / steps)
    first, last = span.within(end)
    with torch.inference_mode(False), torch.enable_grad(), reproducible(engine.device):
        courses = [_course(training, case, engine, first, last) for case in cases]
        running = [course for course in courses if course.epoch < last]
        for course in courses:
            if last < end and course not in running:
                course.keep()
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
            for course in ended:
                course.prepare(last)
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
                if course.failure is None and course.case.after_epoch is not None:
                    course.case.after_epoch(course.epochs[-1], course.checkpoint)
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


def _course(training: Training, case: Case, engine: Engine, first: int, last: int) -> Course:
    lane = engine.lane(case)
    of = checkpoint_identity(training, case.feed.seed, case.masks, first)
    if case.resume is None:
        at = Checkpoint(first, lane.snapshot()(), {}, of=of)
    else:
        at = _checked(case.resume, of, first, last)
        if case.probe is not None and not was_probed(at, case.probe, first, case.feed.steps):
            raise ForeignCheckpoint("the checkpoint does not hold what a probe would have seen before it")
        lane.load(at.state)
        lane.load_optimizer_state(at.optimizer)
    return Course(training, case, lane, at, first)


def was_probed(at: Checkpoint, probe: Probe, first: int, steps: int) -> bool:
    """Whether a checkpoint holds all that a probe has seen of a training that began with epoch `first`."""
    return [seen["step"] for seen in at.probed] == probe.due(first * steps, at.epoch * steps, steps)


def _check_feed(feed: Feed, training: Training) -> None:
    for what, given, wanted in (
        ("batch", feed.batch, training.batch),
        ("augment", feed.augment, training.augment),
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
def reproducible(device: torch.device) -> Iterator[None]:
    """Random numbers of its own, and kernels that always give the same bits."""
    kept = everybodys_kept([device] if device.type == "cuda" else [])
    with torchs_own:
        kept.__enter__()
    try:
        with same_kernels():
            yield
    finally:
        with torchs_own:  # another thread may be drawing from what is put back here
            kept.__exit__(None, None, None)


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
