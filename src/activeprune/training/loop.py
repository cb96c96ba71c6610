"""The training loop."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InputError, whole
from ..core.masks import Masks
from ..core.randomness import stable_seed
from ..data import Feed
from ..machine import device as usable_device
from .course import Course
from .member import Member
from .result import Checkpoint, Epoch, ForeignCheckpoint, Result
from .schedules import learning_rates
from .settings import Training

AfterEpoch = Callable[[Epoch, Callable[[], Checkpoint]], None]


def train(
    training: Training,
    seed: int,
    start: Mapping[str, Tensor],
    masks: Masks | None = None,
    *,
    first: int = 0,
    last: int | None = None,
    rewind_epoch: int | None = None,
    resume: Checkpoint | None = None,
    after_epoch: AfterEpoch | None = None,
    feed: Feed | None = None,
    device: str | torch.device = "cpu",
    workers: int = 0,
) -> Result:
    """Trains from `start` under `masks`: a function of its first four arguments, to the bit on one CPU.

    `first` and `last` bound the epochs: a training that starts at the state of a later epoch takes schedule and data
    from there on. `rewind_epoch` asks for the state after that many epochs. `after_epoch(record, checkpoint)` is called
    between epochs; what `checkpoint()` returns there lets another call `resume` with no effect on the result. `feed`
    may be given where it is at hand already; `device` and `workers` (processes that decode files) change no result
    beyond rounding.

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
    rates = learning_rates(training, feed.steps, 1.0 if masks is None else masks.density)
    first, last, end = _epochs(len(rates), feed.steps, first, last)
    with torch.inference_mode(False), torch.enable_grad(), _reproducible(place):
        member = Member(training, training.build(len(feed.classes), feed.channels), start, masks, place)
        member.check_output(feed)
        of = _identity(training, seed, masks, first)
        at = Checkpoint(first, member.state(), {}, of=of) if resume is None else _checked(resume, of, first, last)
        if rewind_epoch is not None and not first <= whole("rewind_epoch", rewind_epoch, 0) <= last:
            raise InputError(f"rewind_epoch = {rewind_epoch}: this training goes from epoch {first} to {last}")
        if resume is not None:
            member.load(at.state)
            member.load_optimizer_state(at.optimizer)
        course = Course(training, member, at, rewind_epoch)
        images, busy = 0, 0.0

        def seconds() -> float:
            return at.seconds + time.perf_counter() - began

        while course.epoch < last and course.failure is None:
            own = rates[course.epoch * feed.steps : (course.epoch + 1) * feed.steps]
            since = time.perf_counter()
            losses, right = _one_epoch(member, feed, course.epoch, seed, own)
            busy += time.perf_counter() - since
            images += len(losses) * feed.batch
            if course.finish(losses, right, own.tolist(), feed) and after_epoch is not None:
                after_epoch(course.epochs[-1], lambda: course.checkpoint(seconds()))
        return course.result(seconds(), images / busy if busy else 0.0, unfinished=last < end)


def _one_epoch(member: Member, feed: Feed, epoch: int, seed: int, rates: Tensor) -> tuple[list[float], int]:
    """The loss of every step and the number of right answers; waits for the device once, at the end.

    What a network draws by itself, such as dropout, is drawn from (seed, "step", number of the step).
    """
    on_device = rates.to(member.device, torch.float32)
    losses = torch.empty(len(rates), device=member.device)
    right = torch.zeros((), dtype=torch.int64, device=member.device)
    member.model.train()
    for index, (x, y) in enumerate(islice(feed.training(epoch), len(rates))):
        torch.manual_seed(stable_seed(seed, "step", epoch * feed.steps + index))
        member.rate.copy_(on_device[index])
        losses[index], correct = member.step(x, y)
        right += correct
    return losses.tolist(), int(right)


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


def _identity(training: Training, seed: int, masks: Masks | None, first: int) -> str:
    """What must be the same for a checkpoint to fit; where the data are and where the training ends need not."""
    told = training.model_dump_json(exclude={"data": {"path"}})
    digest = hashlib.sha256(f"{told} {seed} {first}".encode())
    for name, mask in (masks or {}).items():
        digest.update(name.encode())
        digest.update(np.packbits(mask.cpu().numpy().reshape(-1)).tobytes())
    return digest.hexdigest()


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """Random numbers of its own, and on a GPU the convolutions that always give the same bits in full float32."""
    flags = torch.backends.cudnn
    before = flags.deterministic, flags.benchmark, flags.allow_tf32
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            flags.deterministic, flags.benchmark, flags.allow_tf32 = True, False, False
            yield
        finally:
            flags.deterministic, flags.benchmark, flags.allow_tf32 = before
