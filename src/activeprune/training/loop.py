"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.masks import Masks
from ..core.randomness import stable_seed
from ..data import Feed
from .member import Member
from .result import Checkpoint, Epoch, Failure, Result
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
    replaces the data that the training names; `device` and `workers` (processes that decode files) change no result
    beyond rounding.

    >>> training = Training(network="resnet8", data={"name": "digits", "limit": 100}, lr=0.1, epochs="1ep", batch=30)
    >>> start = training.build(num_classes=10, channels=1, seed=0).state_dict()
    >>> result = train(training, 0, start)
    >>> [epoch.step for epoch in result.epochs], result.failure
    ([3], None)
    """
    began = time.perf_counter()
    device = torch.device(device)
    feed = feed or training.feed(seed, str(device), workers)
    member = Member(training, training.build(len(feed.classes), feed.channels), start, masks, device)
    rates = learning_rates(training, feed.steps, 1.0 if masks is None else masks.density)
    end = math.ceil(len(rates) / feed.steps)
    last = end if last is None else last
    if not 0 <= first < last <= end:
        raise InputError(f"epochs {first} to {last}: this training has epochs 0 to {end}")
    if rewind_epoch is not None and not first <= rewind_epoch <= last:
        raise InputError(f"rewind_epoch = {rewind_epoch}: this training goes from epoch {first} to {last}")
    at = Checkpoint(first, member.state(), {})
    if resume is not None:
        if not first <= resume.epoch <= last:
            raise InputError(f"a checkpoint after epoch {resume.epoch} of a training from {first} to {last}")
        at = resume
        member.load(at.state)
        member.load_optimizer_state(at.optimizer)

    good, rewind, records = at.state, at.rewind, list(at.epochs)
    images, busy = 0, 0.0
    failure = None

    def checkpoint() -> Checkpoint:
        seconds = at.seconds + time.perf_counter() - began
        return Checkpoint(records[-1].epoch + 1, good, member.optimizer_state(), tuple(records), rewind, seconds)

    with _reproducible(device):
        for epoch in range(at.epoch, last):
            if epoch == rewind_epoch:
                rewind = good
            steps = slice(epoch * feed.steps, (epoch + 1) * feed.steps)
            since = time.perf_counter()
            losses, right = _one_epoch(member, feed, epoch, seed, rates[steps])
            busy += time.perf_counter() - since
            images += len(losses) * feed.batch
            if failure := _failure(member, epoch, losses, rates[steps], steps.start):
                break
            validation = member.score(feed.evaluation("validation"))
            records.append(
                Epoch(
                    epoch=epoch,
                    step=steps.start + len(losses),
                    lr=float(rates[steps][-1]),
                    train_loss=math.fsum(losses) / len(losses),
                    train_accuracy=right / (len(losses) * feed.batch),
                    validation_loss=validation.loss,
                    validation_accuracy=validation.accuracy,
                    test_accuracy=member.score(feed.evaluation("test")).accuracy,
                )
            )
            good = member.state()
            if after_epoch is not None:
                after_epoch(records[-1], checkpoint)
    if rewind_epoch == last and failure is None:
        rewind = good
    seconds = at.seconds + time.perf_counter() - began
    speed = images / busy if busy else 0.0
    return Result(good, tuple(records), training.early_stop, rewind, failure, seconds, speed)


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


def _failure(member: Member, epoch: int, losses: list[float], rates: Tensor, begin: int) -> Failure | None:
    """The first step whose loss is no number, or the last one if it left weights that are none."""
    for index, loss in enumerate(losses):
        if not math.isfinite(loss):
            return Failure(begin + index, epoch, float(rates[index]), loss)
    if not member.is_finite():
        return Failure(begin + len(losses) - 1, epoch, float(rates[-1]), math.nan)
    return None


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
