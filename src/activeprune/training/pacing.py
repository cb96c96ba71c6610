"""How many networks at once are fastest: one number after the other is tried."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .case import Case
from .engine import Engine
from .loop import reproducible

ROUNDS = 2  # in which a number is timed; the better one counts


@dataclass(frozen=True)
class Trial:
    """Numbers of networks at once, each timed for so many `steps`, until one is not `worth` times as fast as the one
    before: it takes more memory, and longer until the first result.
    """

    numbers: Sequence[int]
    steps: int
    worth: float


@dataclass(frozen=True)
class Pace:
    """Seconds that a step of so many networks takes, and an evaluation of all; bytes of the GPU that were in use."""

    step: float
    evaluation: float = 0.0
    memory: int = 0


def fastest(trial: Trial, planned: int, pace: Callable[[int], Pace | None], memory: float = math.inf) -> int:
    """The number of networks from which on more are not worth it, do not fit into so much memory, or are not `planned`.

    `pace` is None of a number that cannot be had. Where the first one cannot, it is halved until one can; where none
    can, it is 1, and who trains it sees why.

    >>> seconds = {4: 0.010, 8: 0.013, 16: 0.022, 32: 0.043}
    >>> fastest(Trial((4, 8, 16, 32), 12, worth=1.05), 100, lambda number: Pace(seconds[number]))
    16
    """
    first, *others = sorted({min(number, planned) for number in trial.numbers})
    best, found = most_that_can(first, pace)
    if found is None or best < first:
        return best
    for number in others:
        if found.memory * number > memory * best:
            break
        more = pace(number)
        if more is None or number / more.step < trial.worth * best / found.step:
            break
        best, found = number, more
    return best


def most_that_can(number: int, pace: Callable[[int], Pace | None]) -> tuple[int, Pace | None]:
    """So many networks, or half as many, and so on, until they can be had, and their pace; 1 in any case.

    >>> most_that_can(16, lambda number: Pace(0.1) if number < 6 else None)
    (4, Pace(step=0.1, evaluation=0.0, memory=0))
    """
    while (found := pace(number)) is None and number > 1:
        number //= 2
    return number, found


def timed(make: Callable[[], Engine], count: int, case: Case, steps: int, device: torch.device) -> Pace:
    """The pace of `count` networks on the engine that `make` makes."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with reproducible(device):
        step, evaluation = _seconds(make(), count, case, steps)
    return Pace(step, evaluation, torch.cuda.max_memory_reserved(device) if device.type == "cuda" else 0)


def _seconds(engine: Engine, count: int, case: Case, steps: int) -> tuple[float, float]:
    """Of a step and of an evaluation, the best of some rounds behind a first one, in which both are captured."""
    lanes = [engine.lane(case) for _ in range(count)]
    steps = min(steps, case.feed.steps)
    case.expect(0)
    rounds: list[tuple[float, float]] = []
    for _ in range(1 + ROUNDS):
        for lane in lanes:
            lane.prepare(0, torch.full((case.feed.steps,), 1e-4, dtype=torch.float64))
            lane.begin()
        if engine.device.type == "cuda":
            torch.cuda.synchronize(engine.device)
        began = time.perf_counter()
        engine.run(lanes, steps)
        lanes[0].end()  # which waits for the device
        trained = time.perf_counter()
        engine.score(lanes)
        rounds.append(((trained - began) / steps, time.perf_counter() - trained))
    best, evaluation = zip(*rounds[1:], strict=True)
    return min(best), min(evaluation)
