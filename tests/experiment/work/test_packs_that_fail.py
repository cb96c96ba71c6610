"""Packs in which something goes wrong: an error stays with its network; what does not fit is done in another way."""

import weakref
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.work.compute import Compute
from activeprune.experiment.work.observer import Observer
from activeprune.experiment.work.packed import Packed
from activeprune.machine import CPU
from activeprune.training import Training
from activeprune.training.choosing import Engines
from activeprune.training.engine import Eager
from activeprune.training.loop import train_together
from activeprune.training.unavailable import EngineUnavailable
from tests.experiment.makers import Listening, contents
from tests.experiment.work.test_packed import CHANGES, dropping, reference

__all__ = ["reference"]  # a fixture


def test_an_engine_that_turns_out_unable_is_replaced_and_nothing_is_lost(reference: Run, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=CHANGES)
    said: list[str] = []
    engines = Engines(CPU, 3, said.append)
    refused: list[type] = []
    engines.refuse = lambda training, kind, why: refused.append(kind)  # type: ignore[method-assign]
    packed = Packed(run.store, Compute(run.store), engines, lambda: None)
    calls = []

    def unable(*arguments, **options):
        calls.append(len(arguments[1]))
        if len(calls) == 1:
            raise EngineUnavailable("not today")
        if len(calls) == 2:
            raise torch.cuda.OutOfMemoryError("too much")
        return train_together(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activeprune.experiment.work.packed.train_together", unable)
        packed.run(run.plan, Observer())
    assert calls[:3] == [3, 3, 1]  # the second time the memory was too small: half as many
    assert len(refused) == 1
    assert contents(run.store.root) == contents(reference.store.root)


def test_memory_that_does_not_suffice_limits_the_training_it_was_too_small_for() -> None:
    one = Plan(read_study("smoke")).trainings[0].training
    other, alike = (one.model_copy(update=changes) for changes in ({"batch": 8}, {"lr": 0.001}))
    engines = Engines(CPU, 8)
    engines.limit(one, 2)
    assert [engines.room(training, one.dataset(), 9) for training in (one, other, alike)] == [2, 8, 2]


class Picky(nn.Sequential):
    """Cannot be trained from every start."""

    also_evaluated = False

    def forward(self, x: Tensor) -> Tensor:
        if (self.training or self.also_evaluated) and self[0].weight[0, 0, 0, 0] < 0:
            raise ValueError("not from here")
        output: Tensor = super().forward(x)
        return output


def picky(num_classes: int = 10, in_channels: int = 1, also_evaluated: bool = False) -> nn.Module:
    model = Picky(*dropping(num_classes, in_channels))
    model.also_evaluated = also_evaluated
    return model


@pytest.mark.parametrize("also_evaluated", [False, True])
def test_an_error_stays_with_the_network_that_it_belongs_to(tmp_path: Path, also_evaluated: bool) -> None:
    """What comes out does not depend on who else was in the pack."""
    network = {"name": "tests.experiment.work.test_packs_that_fail:picky", "also_evaluated": also_evaluated}
    changes = {**CHANGES, "seeds": 6, "cycles": 1, "network": network}
    runs, failed, told = [], [], []
    for folder, pack in (("alone", None), ("packed", 4)):
        runs.append(run := started("smoke", tmp_path / folder / "run", changes=changes))
        outcome = run.go(listening := Listening(), pack=pack)
        failed.append(sorted(line for line in outcome.failed if "ValueError: not from here" in line))
        told.append([listening.lines.get() for _ in range(listening.lines.qsize())])
    assert failed[0] == failed[1]
    assert 0 < len(failed[0]) < len(runs[0].plan.trainings)
    assert {line.split(",")[0] for line in failed[0]} <= {f"seed {seed} train dense" for seed in range(6)}
    assert contents(runs[0].store.root) == contents(runs[1].store.root)
    packed = "a pack of 4 failed (ValueError: not from here): they are trained one by one"
    assert f"{network['name']}: {packed}" in told[1]


def packed_with(kind: type[Eager], run: Run, listening: Listening) -> Packed:
    """As on a GPU that has such an engine; three networks at once."""
    engines = Engines(CPU, 3, listening.trouble)
    engines._fitting = {step.training: [kind] for step in run.plan.trainings}
    engines._new = lambda training, dataset, count, kind: kind(training, CPU)  # type: ignore[method-assign]
    return Packed(run.store, Compute(run.store), engines, lambda: None)


class Jealous(Eager):
    """Fails with several networks, and cannot be made beside another of its kind."""

    others: ClassVar[list[weakref.ref]] = []

    def __init__(self, training: Training, device: torch.device) -> None:
        assert all(other() is None for other in self.others)
        self.others.append(weakref.ref(self))
        super().__init__(training, device)

    def run(self, lanes, steps: int) -> None:
        if len(lanes) > 1:
            raise ValueError("one at a time")
        super().run(lanes, steps)

    def clear(self) -> None:
        pass


def test_those_of_a_pack_that_failed_have_the_device_for_themselves(reference: Run, tmp_path: Path) -> None:
    run, listening = started("smoke", tmp_path / "run", changes=CHANGES), Listening()
    outcome = packed_with(Jealous, run, listening).run(run.plan, listening)
    assert outcome.failed == outcome.blocked == ()
    assert contents(run.store.root) == contents(reference.store.root)


def test_an_error_of_the_data_or_the_machine_ends_the_run_at_once(tmp_path: Path) -> None:
    run, listening, calls = started("smoke", tmp_path / "run", changes=CHANGES), Listening(), []

    class Failing(Jealous):
        def run(self, lanes, steps: int) -> None:
            calls.append(len(lanes))
            raise ap.InputError("the disk is full")

    with pytest.raises(ap.InputError, match="the disk is full"):
        packed_with(Failing, run, listening).run(run.plan, listening)
    assert calls == [3]


class Large(Eager):
    """An engine that the memory never suffices for."""

    def run(self, lanes, steps: int) -> None:
        raise torch.cuda.OutOfMemoryError("too much")

    def clear(self) -> None:
        pass


class Larger(Large):
    """The same, from the beginning."""

    def __init__(self, training: Training, device: torch.device) -> None:
        raise torch.cuda.OutOfMemoryError("too much")


@pytest.mark.parametrize("kind", [Large, Larger])
def test_memory_that_does_not_hold_one_network_and_its_graph_leaves_the_plain_loop(
    reference: Run, tmp_path: Path, kind: type[Eager]
) -> None:
    """Which needs less; nothing is lost."""
    run, listening = started("smoke", tmp_path / "run", changes=CHANGES), Listening()
    packed_with(kind, run, listening).run(run.plan, listening)
    lines = [listening.lines.get() for _ in range(listening.lines.qsize())]
    assert [line for line in lines if isinstance(line, str)] == [
        "resnet8: 3 networks do not fit into the GPU's memory: 1 at once at most",
        "resnet8: the GPU's memory does not hold one network and its graph; it is trained the slower way",
    ]
    assert contents(run.store.root) == contents(reference.store.root)


def test_memory_that_does_not_hold_one_network_in_any_way_ends_the_run(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=CHANGES)
    packed = Packed(run.store, Compute(run.store), Engines(CPU, 1), lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Eager, "run", Large.run)
        with pytest.raises(ap.InputError, match="the GPU's memory does not hold one network"):
            packed.run(run.plan, Observer())


def test_what_a_network_raises_is_told_of_every_one_in_the_pack(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={**CHANGES, "variants": ["plain"], "cycles": 1})

    def broken(*arguments, **options):
        raise ZeroDivisionError("a network of somebody's own")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activeprune.experiment.work.packed.train_together", broken)
        outcome = run.go(pack=3)
    assert len(outcome.failed) == 3
    assert all("ZeroDivisionError: a network of somebody's own" in line for line in outcome.failed)
