"""Which trainings go together: full packs first, and nobody waits for ever."""

from collections import Counter

from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.steps import Init, Train
from activeprune.experiment.work.turns import Turns
from activeprune.training import Training

BASE = Plan(read_study("smoke", {"variants": ["plain"]})).trainings[0].training
OTHER = BASE.model_copy(update={"lr": 0.001})


def trainings(training: Training, count: int, **more) -> list[Train]:
    return [Train(training, seed, Init(training, seed, 1), **more) for seed in range(count)]


def room(training: Training) -> int:
    return 4 if training == BASE else 2


def test_a_full_pack_goes_where_a_larger_group_is_not_full() -> None:
    ready = trainings(BASE, 3) + trainings(OTHER, 2)
    assert Turns().full(ready, room) == ready[3:]
    assert Turns().largest(ready, room) == ready[:3]


def test_no_more_go_together_than_there_is_room_for() -> None:
    assert Turns().full(trainings(BASE, 9), room) == trainings(BASE, 4)
    assert Turns().largest(trainings(OTHER, 9), room) == trainings(OTHER, 2)
    assert Turns().full([], room) == Turns().largest([], room) == []


def test_where_the_room_is_not_known_nothing_is_full() -> None:
    assert Turns().full(trainings(BASE, 100), lambda training: None) == []


def test_trainings_over_other_epochs_are_another_pack() -> None:
    ready = trainings(BASE, 2) + trainings(BASE, 2, first=1) + trainings(BASE, 2, last=1)
    assert Turns().full(ready, room) == []
    assert Turns().largest(ready, room) == ready[:2]


def test_full_packs_of_two_shapes_take_turns() -> None:
    ready = trainings(BASE, 40) + trainings(OTHER, 40)
    turns = Turns()
    taken = [turns.full(ready, room)[0].training for _ in range(10)]
    assert Counter(taken) == {BASE: 5, OTHER: 5}


def test_a_few_trainings_of_a_rare_shape_go_at_last() -> None:
    """One of four, while there are always four of another shape."""
    ready = trainings(OTHER, 40) + trainings(BASE, 1)
    turns = Turns()
    taken = [turns.full(ready, room)[0].training for _ in range(5)]
    assert taken[:3] == [OTHER] * 3
    assert BASE in taken
    largest = [turns.largest(trainings(OTHER, 4) + trainings(BASE, 1), room)[0].training for _ in range(10)]
    assert Counter(largest)[BASE] >= 1
