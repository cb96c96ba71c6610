"""How many networks at once are fastest, at speeds that are known."""

from collections.abc import Callable

import pytest
import torch

from activeprune.core.randomness import everybodys_states
from activeprune.training import Case
from activeprune.training.engine import Eager
from activeprune.training.pacing import Pace, Trial, fastest, timed
from tests.training.makers import start_of, training

DOUBLED = Trial((1, 2, 4, 8), steps=1, worth=1.1)


def paces(speeds: dict[int, float], tried: list[int] | None = None) -> Callable[[int], Pace | None]:
    """Of networks a second; memory does not hold other numbers. A network takes 10 bytes."""

    def pace(number: int) -> Pace | None:
        if tried is not None:
            tried.append(number)
        return Pace(number / speeds[number], memory=10 * number) if number in speeds else None

    return pace


@pytest.mark.parametrize(
    ("speeds", "planned", "best"),
    [
        ({1: 10, 2: 20, 4: 40, 8: 80}, 100, 8),
        ({1: 10, 2: 20, 4: 21, 8: 80}, 100, 2),  # 4 are not worth it, and what comes behind is not tried
        ({1: 10, 2: 10.9}, 100, 1),
        ({1: 10, 2: 11.1}, 100, 2),
        ({1: 10, 2: 20}, 100, 2),  # memory does not hold 4
        ({}, 100, 1),  # nor even one: who trains it will say so
        ({1: 10, 2: 20, 3: 30, 4: 40}, 3, 3),  # no more than are planned
        ({1: 10, 2: 20, 4: 40, 8: 80}, 4, 4),
        ({1: 10, 2: 20, 4: 40, 5: 41}, 5, 4),
    ],
    ids=str,
)
def test_more_at_once_are_tried_as_long_as_they_are_faster(speeds: dict, planned: int, best: int) -> None:
    assert fastest(DOUBLED, planned, paces(speeds)) == best


@pytest.mark.parametrize(
    ("speeds", "tried", "best"),
    [({2: 20, 1: 10}, [8, 4, 2], 2), ({1: 10}, [8, 4, 2, 1], 1), ({}, [8, 4, 2, 1], 1), ({8: 80}, [8, 16], 8)],
)
def test_where_the_first_number_cannot_be_had_it_is_halved(speeds: dict, tried: list[int], best: int) -> None:
    asked: list[int] = []
    assert fastest(Trial((8, 16), steps=1, worth=1.1), 100, paces(speeds, asked)) == best
    assert asked == tried


@pytest.mark.parametrize(("memory", "best"), [(10, 1), (39, 2), (40, 4), (1000, 8)])
def test_what_memory_will_not_hold_is_not_tried(memory: float, best: int) -> None:
    tried: list[int] = []
    assert fastest(DOUBLED, 100, paces({1: 10, 2: 20, 4: 40, 8: 80}, tried), memory) == best
    assert tried == [number for number in DOUBLED.numbers if number <= best]


def test_steps_and_an_evaluation_are_timed_and_all_else_is_left_alone() -> None:
    chosen, device = training(), torch.device("cpu")
    start = start_of(chosen)
    before = {name: tensor.clone() for name, tensor in start.items()}
    case = Case(chosen.feed(0), start)
    calls: list[tuple[str, int]] = []

    class Noting(Eager):
        def run(self, lanes, steps: int) -> None:
            calls.append((f"{steps} steps", len(lanes)))
            super().run(lanes, steps)

        def score(self, lanes):
            calls.append(("evaluation", len(lanes)))
            return super().score(lanes)

    drawn = everybodys_states(device)
    pace = timed(lambda: Noting(chosen, device), 3, case, 2, device)
    assert everybodys_states(device) == drawn
    assert pace is not None
    assert pace.step > 0
    assert pace.evaluation > 0
    assert calls == [("2 steps", 3), ("evaluation", 3)] * 3
    assert all(torch.equal(start[name], tensor) for name, tensor in before.items())


def test_a_step_is_timed_in_epochs_that_have_fewer_than_wanted() -> None:
    chosen, device = training(), torch.device("cpu")
    case = Case(chosen.feed(0), start_of(chosen))
    assert timed(lambda: Eager(chosen, device), 1, case, 10_000, device) is not None
