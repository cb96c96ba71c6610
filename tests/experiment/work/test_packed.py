"""Packs of trainings: the same plan, the same store, the same bytes. On a CPU the lanes of a pack take turns."""

import json
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch import nn

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
