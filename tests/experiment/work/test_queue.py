"""Steps taken with leases: several at once, never the same by two, and given back whatever happens."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.experiment.plan import Plan, Seen
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.steps import Step, Train
from activeprune.experiment.store import Damaged, FolderStore, Problem
from activeprune.experiment.store.artifacts import MASKS, RECORD, STATE
from activeprune.experiment.store.leases import Leases
from activeprune.experiment.store.records import TrainRecord
from activeprune.experiment.work.compute import Made, StepFailed
from activeprune.experiment.work.observer import Observer
from activeprune.experiment.work.queue import TRIES, Queue
from activeprune.training import Epoch
from activeprune.training.result import Failure
from tests.helpers import take_out

FINE = TrainRecord(0.5, 0, 1.0, "last", (Epoch(0, 9, 0.1, 1.0, 0.5, 1.0, 0.5, 0.5),), None)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def plan() -> Plan:
    return Plan(read_study("smoke", {"seeds": 3, "variants": ["plain"]}))


def queue(plan: Plan, store: FolderStore) -> Queue:
    return Queue(plan, store, Leases(store.root), Observer())


def made(step: Step) -> Made:
    return Made({RECORD: FINE.as_bytes(), STATE: b"weights"}, {})


def everything(ready):
    return ready


def test_steps_of_one_shape_are_taken_together(plan: Plan, store: FolderStore) -> None:
    with queue(plan, store) as mine, queue(plan, store) as other:
        steps = mine.take(everything)
        assert [step.seed for step in steps] == [0, 1, 2]
        assert len({step.shape for step in steps}) == 1
        assert all(other.leases.holder(step.key) for step in steps)
        mine.finish(steps[0], made(steps[0]))
        assert [step.kind for step in other.take()] == ["prune"]  # what follows seed 0, while the others go on
        assert mine.computed == 1
    assert not any(Leases(store.root).holder(key) for key in plan.steps)


def test_a_shape_is_the_training_and_its_epochs(plan: Plan) -> None:
    one, two = plan.trainings[0], plan.trainings[-1]
    assert one.shape == two.shape
    assert one.shape != Train(one.training, 0, one.start, first=1).shape
    slower = one.training.model_copy(update={"lr": 0.001})
    assert one.shape != Train(slower, 0, one.start).shape


def test_leases_are_given_back_after_an_error(plan: Plan, store: FolderStore) -> None:
    def interrupted() -> None:
        with queue(plan, store) as mine:
            assert mine.take(everything)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with queue(plan, store) as other:
        assert len(other.take(everything)) == 3


def test_a_step_that_failed_is_not_taken_again(plan: Plan, store: FolderStore) -> None:
    with queue(plan, store) as mine:
        (step,) = mine.take()
        mine.settle([step], StepFailed("no"))
        assert step.key not in {left.key for left in mine.take(everything)}
        assert mine.failed == {step.key: f"{step.title}, {step.key}: no"}


def test_a_result_that_the_store_does_not_keep_ends_the_run(plan: Plan, store: FolderStore) -> None:
    with queue(plan, store) as mine:
        for _ in range(TRIES):
            (step,) = mine.take()
            mine.finish(step, made(step))
            take_out(store, step.key)
        with pytest.raises(ap.InputError, match="the store still lacks it"):
            mine.take()


def test_an_input_that_is_damaged_again_and_again_ends_the_run(plan: Plan, store: FolderStore) -> None:
    """Of steps that were taken together, a try counts for the one that reads it: the others are not to blame."""
    damaged = plan.trainings[0]
    store.put(damaged.key, made(damaged).parts, {})
    with queue(plan, store) as mine:
        for _ in range(TRIES):
            steps = mine.take(everything)
            (reader,) = [step for step in steps if step.kind == "prune"]
            mine.settle(steps, Damaged(Problem(damaged.key, "is not what it was", store.root)))
        mine.take(lambda ready: [step for step in ready if step.kind == "train"])
        with pytest.raises(ap.InputError, match=f"prune {reader.key} was tried {TRIES} times"):
            mine.take(everything)


def test_a_step_that_somebody_finishes_while_it_is_chosen_is_left_alone(plan: Plan, store: FolderStore) -> None:
    def finished_meanwhile(ready):
        store.put(ready[0].key, made(ready[0]).parts, {})
        return ready[:2]

    with queue(plan, store) as mine:
        taken = mine.take(finished_meanwhile)
        assert [step.seed for step in taken] == [1]
        assert [step.seed for step in plan.trainings if mine.leases.holder(step.key)] == [1]


def test_what_was_seen_once_is_not_looked_for_again(plan: Plan, store: FolderStore) -> None:
    """Step by step, a plan knows the same with and without looking at everything; what is lost, after `forget`."""
    seen, looked_at = Seen(store), []
    while ready := plan.ready(store):
        assert plan.todo(seen) == plan.todo(store)
        step = ready[-1]
        fails = isinstance(step, Train) and step.seed == 2 and step.masks
        record = replace(FINE, failure=Failure(9, 0, 0.1, math.nan)) if fails else FINE
        store.put(step.key, {RECORD: record.as_bytes(), STATE: b"weights", MASKS: b"masks"}, {})
    assert plan.todo(seen) == plan.todo(store)
    assert plan.todo(seen).blocked

    class Watched(FolderStore):
        def has(self, key: str, *parts: str) -> bool:
            looked_at.append(key)
            return super().has(key, *parts)

    seen = Seen(Watched(store.root))
    plan.todo(seen)
    before = {*looked_at}
    looked_at.clear()
    assert plan.todo(seen) == plan.todo(store)
    assert before >= {*looked_at} == {step.key for step in plan.todo(store).missing}
    lost = next(iter(before - {*looked_at}))
    take_out(store, lost)
    assert lost not in {step.key for step in plan.todo(seen).missing}
    seen.forget()
    assert lost in {step.key for step in plan.todo(seen).missing}
    assert plan.todo(seen) == plan.todo(store)
