"""Packs of trainings: the same plan, the same store, the same bytes. On a CPU the lanes of a pack take turns."""

import json
import os
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.experiment.errand import Errand
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.steps import Prune, Step, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.leases import Leases
from activeprune.experiment.work.compute import Compute
from activeprune.experiment.work.helpers import Helpers
from activeprune.experiment.work.loaded import FEEDS_KEPT
from activeprune.experiment.work.observer import Observer
from activeprune.experiment.work.packed import Packed
from activeprune.machine import CPU
from activeprune.training import Training
from activeprune.training.choosing import Engines
from activeprune.training.engine import Eager
from activeprune.training.loop import train_together
from activeprune.training.unavailable import EngineUnavailable
from tests.experiment.makers import Counting, Listening, contents
from tests.helpers import take_out

CHANGES = {"variants": ["plain", "ap_lite", "ap_pro"], "cycles": 2, "seeds": 3}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = started("smoke", tmp_path_factory.mktemp("reference") / "run", changes=CHANGES)
    run.go()
    return run


@pytest.mark.parametrize("pack", [1, 2, 7])
def test_a_pack_of_any_size_leaves_the_same_bytes(reference: Run, tmp_path: Path, pack: int) -> None:
    run = started("smoke", tmp_path / "run", changes=CHANGES)
    counting = Counting()
    run.go(counting, pack=pack)
    assert contents(run.store.root) == contents(reference.store.root)
    keys = [step.key for step in counting.steps]
    assert len(keys) == len(set(keys)) == len([s for s in run.plan.steps.values() if s.kind != "init"])
    told = [run.store.provenance(step.key) for step in run.plan.trainings]
    assert {provenance["engine"] for provenance in told} == {"eager"}
    assert max(provenance["pack"] for provenance in told) == pack


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_a_pack_that_is_interrupted_goes_on_in_one_of_another_size(reference: Run, tmp_path: Path) -> None:
    changes = {**CHANGES, "epochs": "3ep", "cycles": 1}
    whole = started("smoke", tmp_path / "whole" / "run", changes=changes)
    whole.go()
    run = started("smoke", tmp_path / "part" / "run", changes=changes)
    seen: list[int] = []

    class Stumbling(Observer):
        def epoch(self, step: Step, epoch, epochs: int) -> None:
            seen.append(epoch.epoch)
            if len(seen) == 5:  # of the second epoch, two lanes have left a checkpoint
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.go(Stumbling(), pack=3)
    assert seen == [0, 0, 0, 1, 1]
    more = seen.copy()

    class Listening(Observer):
        def epoch(self, step: Step, epoch, epochs: int) -> None:
            more.append(epoch.epoch)

    run.go(Listening(), pack=2)
    assert sorted(more[5:8]) == [1, 2, 2] or more[5:7] == [2, 2]  # nobody begins at 0 again
    assert contents(run.store.root) == contents(whole.store.root)


def test_a_pack_in_which_all_fail_ends_the_run_with_what_is_blocked(tmp_path: Path) -> None:
    changes = {**CHANGES, "variants": ["plain"], "lr": 1e30, "cycles": 1}
    run = started("smoke", tmp_path / "run", changes=changes)
    outcome = run.go(pack=3)
    assert len(outcome.blocked) > 0
    assert all(row["failure"] is not None for row in run.rows() if not row["cycle"])


@pytest.mark.parametrize(
    "changes",
    [{"init": "native"}, {"network": "tests.experiment.work.test_packed:dropping"}],
    ids=["weights that the network draws", "dropout"],
)
def test_threads_that_build_do_not_disturb_what_is_drawn_elsewhere(tmp_path: Path, changes: dict) -> None:
    """Torch's own random numbers are one for all threads: who draws them has them alone."""
    runs = []
    for folder, pack in (("alone", None), ("packed", 2)):
        run = started("smoke", tmp_path / folder / "run", changes={**CHANGES, "seeds": 4, "cycles": 1, **changes})
        run.go(pack=pack)
        runs.append(contents(run.store.root))
    assert runs[0] == runs[1]


def dropping(num_classes: int = 10, in_channels: int = 1) -> nn.Module:
    convolution = nn.Conv2d(in_channels, 8, 3, padding=1)
    return nn.Sequential(convolution, nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 64, num_classes))


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
    network = {"name": "tests.experiment.work.test_packed:picky", "also_evaluated": also_evaluated}
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
    assert "a pack of 4 networks failed (ValueError: not from here): they are trained one by one" in told[1]


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
        "3 networks do not fit into the GPU's memory: 1 at once at most",
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


def test_no_more_are_planned_for_than_can_be_ready_together(tmp_path: Path) -> None:
    """A measurement of how many go together must not take longer than the few that are left."""
    run = started("smoke", tmp_path / "run", changes={**CHANGES, "variants": ["plain"], "cycles": 1})
    planned: list[int] = []
    engines = Engines(CPU)
    engines.room = lambda training, dataset, count: planned.append(count) or 2  # type: ignore[method-assign]
    packed = Packed(run.store, Compute(run.store), engines, lambda: None)
    packed.run(run.plan, Observer())
    assert set(planned) == {3}  # three seeds; each is trained again, but only once it is pruned
    for step in [step for step in run.plan.trainings if step.masks is None][:2]:
        take_out(run.store, step.key)
    planned.clear()
    packed.run(run.plan, Observer())
    assert set(planned) == {2}


@pytest.mark.parametrize("pack", [2, 7])
def test_late_rewinding_in_packs_leaves_the_same_bytes(tmp_path: Path, pack: int) -> None:
    """First epochs with a checkpoint, trainings that go on from it, and trainings that begin at a later epoch."""
    late = {**CHANGES, "chain": "rewind", "rewind_epoch": 1, "epochs": "3ep"}
    runs = []
    for folder, size in (("alone", None), ("packed", pack)):
        run = started("smoke", tmp_path / folder / "run", changes=late)
        outcome = run.go(pack=size)
        assert outcome.blocked == outcome.failed == ()
        runs.append(run)
    alone, packed = (contents(run.store.root) for run in runs)
    assert packed == alone
    packs: dict[tuple, int] = Counter()
    for step in runs[1].plan.steps.values():
        if isinstance(step, Train):
            told = runs[1].store.provenance(step.key)["pack"]
            sort = step.first, step.last, step.resume is not None
            packs[sort] = max(packs[sort], told)
    most = min(pack, 3)
    assert packs == {(0, 1, False): most, (0, None, True): most, (1, None, False): pack}


def test_feeds_of_many_seeds_do_not_pile_up(tmp_path: Path) -> None:
    training = Plan(read_study("smoke")).trainings[0].training
    compute = Compute(FolderStore(tmp_path))
    feeds = [compute.loaded.feed_by_rows(training, seed) for seed in range(FEEDS_KEPT + 5)]
    assert compute.loaded.feed_by_rows.cache_info().currsize == FEEDS_KEPT
    assert compute.loaded.feed_by_rows(training, FEEDS_KEPT) is feeds[FEEDS_KEPT]


def test_data_are_loaded_once_for_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Plan(read_study("smoke")).trainings[0].training
    compute = Compute(FolderStore(tmp_path))
    loads: list[str] = []
    asking = threading.Semaphore(0)

    def when_all_have_asked(chosen: Training):
        loads.append(chosen.data.name)
        assert len(loads) > 1 or all(asking.acquire(timeout=60) for _ in range(4))
        return dataset(chosen)

    def asked(_: int):
        asking.release()
        return compute.loaded.dataset(training)

    dataset = Training.dataset
    monkeypatch.setattr(Training, "dataset", when_all_have_asked)
    with ThreadPoolExecutor(4) as pool:
        found = {id(data) for data in pool.map(asked, range(4))}
    assert (len(found), loads) == (1, ["digits"])


@pytest.mark.parametrize(
    ("method", "asks"), [("global_magnitude", False), ("global_gradient", True), ("lookahead", True)]
)
def test_only_a_method_that_looks_at_data_asks_for_them(tmp_path: Path, method: str, asks: bool) -> None:
    run = started("smoke", tmp_path / "run", changes={"variants": ["plain"], "cycles": 1, "method": method})
    compute = Compute(run.store)
    asked: list[int] = []
    feed = compute.loaded.feed
    first, prune = [step for step in run.plan.steps.values() if step.kind != "init"][:2]
    made = compute(first)
    run.store.put(first.key, made.parts, made.provenance)
    compute.loaded.feed = lambda training, seed: asked.append(seed) or feed(training, seed)  # type: ignore
    assert isinstance(prune, Prune)
    compute(prune)
    assert bool(asked) == asks


def test_a_damaged_start_is_made_again_before_its_pack(reference: Run, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=CHANGES)
    run.go(pack=3)
    before = contents(run.store.root)
    prunings = [step for step in run.plan.steps.values() if isinstance(step, Prune) and step.cycle == 2]
    for step in (*prunings, *(t for t in run.plan.trainings if t.masks in prunings)):
        take_out(run.store, step.key)
    victim = next(step.trained for step in prunings if isinstance(step.trained, Train))
    state = run.store.root / "objects" / victim.key[:2] / victim.key / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    run.go(pack=3)
    assert contents(run.store.root) == before


def test_the_command_line_has_it_too(reference: Run, tmp_path: Path) -> None:
    run = ap.run("smoke", out=tmp_path / "run", set=CHANGES, pack=4)
    assert run.rows() == reference.rows()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["cells"]


def test_what_a_network_raises_is_told_of_every_one_in_the_pack(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={**CHANGES, "variants": ["plain"], "cycles": 1})

    def broken(*arguments, **options):
        raise ZeroDivisionError("a network of somebody's own")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activeprune.experiment.work.packed.train_together", broken)
        outcome = run.go(pack=3)
    assert len(outcome.failed) == 3
    assert all("ZeroDivisionError: a network of somebody's own" in line for line in outcome.failed)


def test_steps_that_another_process_held_are_done_when_it_leaves_them(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={**CHANGES, "variants": ["plain"], "cycles": 1})
    others = Leases(run.store.root)
    held = [others.take(step.key) for step in run.plan.ready(run.store)]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        for lease in held:
            assert lease is not None
            lease.release()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activeprune.experiment.work.queue.time.sleep", sleep)
        run.go(pack=3)
    assert len(waits) == 1
    assert all(row["accuracy"] is not None for row in run.rows())


@pytest.mark.slow
def test_helpers_pack_as_well(reference: Run, tmp_path: Path) -> None:
    """All by a helper, while this process only listens."""
    run = started("smoke", tmp_path / "run", changes=CHANGES)
    run.write_study()
    listening, missing = Listening(), run.plan.todo(run.store).missing
    with Helpers(Errand(run.out, os.getpid(), pack=3).command, 1, run.plan, listening):
        listening.told(len(missing))
    assert contents(run.store.root) == contents(reference.store.root)
    assert max(run.store.provenance(step.key)["pack"] for step in run.plan.trainings) == 3
