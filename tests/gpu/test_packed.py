"""Studies in packs on a GPU: the size of a pack and an interruption leave no trace in the store."""

import json
from pathlib import Path

import pytest
import torch

from activeprune.experiment.plan.steps import Measure, Step, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import archive
from activeprune.experiment.store.records import train_record
from activeprune.experiment.work.observer import Observer
from activeprune.training.choosing import TRIAL_CAPTURED, TRIAL_FUSED, Engines, side_by_side
from tests.experiment.makers import contents
from tests.gpu.makers import patches, training

pytestmark = pytest.mark.gpu

CHANGES = {
    "network": "resnet8", "data": "tests.gpu.makers:patches", "precision": "bf16", "batch": 64, "epochs": "3ep",
    "augment": "crop_flip", "seeds": 3, "cycles": 2, "variants": ["plain", "ap_lite", "ap_pro"], "device": "cuda",
}  # fmt: skip


def run_of(folder: Path, **changes) -> Run:
    return started("smoke", folder / "run", changes={**CHANGES, **changes})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = run_of(tmp_path_factory.mktemp("alone"))
    run.go(pack=1)
    return run


@pytest.mark.parametrize("pack", [4, None])
def test_fused_packs_of_any_size_leave_the_same_bytes(alone: Run, tmp_path: Path, pack: int | None) -> None:
    run = run_of(tmp_path)
    run.go(pack=pack)
    assert contents(run.store.root) == contents(alone.store.root)
    told = [run.store.provenance(step.key) for step in run.plan.trainings]
    assert {provenance["engine"] for provenance in told} == {"fused"}
    assert max(provenance["pack"] for provenance in told) > 3


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_a_fused_pack_that_is_interrupted_ends_in_the_same_bytes(alone: Run, tmp_path: Path) -> None:
    run = run_of(tmp_path)
    seen = []

    class Stumbling(Observer):
        def epoch(self, step: Step, epoch, epochs: int) -> None:
            seen.append(epoch.epoch)
            if len(seen) == 14:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.go(Stumbling(), pack=3)
    run.go(pack=5)
    assert contents(run.store.root) == contents(alone.store.root)


def test_networks_without_kernels_of_their_own_are_captured(tmp_path: Path) -> None:
    run = run_of(tmp_path, precision="fp32", variants=["plain"], cycles=1)
    outcome = run.go(pack=3)
    assert outcome.failed == outcome.blocked == ()
    told = {run.store.provenance(step.key)["engine"] for step in run.plan.trainings}
    assert told == {"captured"}


LATE = {"chain": "rewind", "rewind_epoch": 1, "seeds": 2}


def test_late_rewinding_in_fused_packs_leaves_the_same_bytes(tmp_path: Path) -> None:
    """First epochs with a checkpoint, trainings that go on from it, and trainings that begin at a later epoch."""
    runs = [run_of(tmp_path / str(pack), **LATE) for pack in (1, 4)]
    for run, pack in zip(runs, (1, 4), strict=True):
        outcome = run.go(pack=pack)
        assert outcome.failed == outcome.blocked == ()
        assert {run.store.provenance(step.key)["engine"] for step in run.plan.trainings} == {"fused"}
    assert contents(runs[0].store.root) == contents(runs[1].store.root)


def test_late_rewinding_in_captured_packs_is_that_of_single_trainings(tmp_path: Path) -> None:
    """The same epochs in all records, and the same numbers, but for rounding, in those before the first pruning."""
    found = []
    for pack in (1, 4):
        run = run_of(tmp_path / str(pack), **LATE, precision="fp32")
        outcome = run.go(pack=pack)
        assert outcome.failed == outcome.blocked == ()
        trainings = [step for step in run.plan.steps.values() if isinstance(step, Train)]
        assert {run.store.provenance(step.key)["engine"] for step in trainings} == {"captured"}
        found.append({step: train_record(run.store, step.key) for step in trainings})
    for (step, alone), packed in zip(found[0].items(), found[1].values(), strict=True):
        assert alone is not None
        assert packed is not None
        epochs, others = alone.epochs, packed.epochs
        assert [epoch.epoch for epoch in others] == [*range(step.first, step.last or 3)]
        assert [epoch.step for epoch in others] == [epoch.step for epoch in epochs]
        if step.masks is None:
            losses = [[epoch.train_loss for epoch in of] for of in (others, epochs)]
            assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_the_number_of_lanes_is_measured_where_it_is_not_known() -> None:
    told: list[str] = []
    engines = Engines(torch.device("cuda"), None, told.append)
    dataset = patches()
    for chosen, trial in (
        (training(precision="bf16"), TRIAL_FUSED),
        (training(network="mobilenetv2", batch=64), TRIAL_CAPTURED),
    ):
        told.clear()
        rooms = {engines.room(chosen, dataset, planned=100) for _ in range(2)}
        assert rooms <= {*trial.numbers}
        assert told == [
            f"{chosen.network.name}: a few steps are timed first",
            f"{chosen.network.name}: {side_by_side(rooms.pop())} chosen by timing",
        ]
        paces = engines.paces(chosen, dataset, planned=100)
        assert all(pace.step > 0 and pace.evaluation > 0 and pace.memory > 0 for pace in paces.values())
    told.clear()
    assert engines.room(training(precision="bf16", lr=0.1), dataset, planned=100) in TRIAL_FUSED.numbers
    assert told == []  # it is like the first, but for what changes no speed
    assert engines.room(training(precision="bf16"), dataset, planned=5) in (4, 5)


def test_dead_neurons_are_the_same_in_packs_of_any_size(tmp_path: Path) -> None:
    """And looking at them changes no training; a bf16 training is measured in float32."""
    changes = {"measure": "dnr", "probe_every": "1ep", "variants": ["plain", "ap_lite"], "cycles": 1}
    runs = [run_of(tmp_path / str(pack), **changes) for pack in (1, 4)]
    for run, pack in zip(runs, (1, 4), strict=True):
        outcome = run.go(pack=pack)
        assert outcome.failed == outcome.blocked == ()
    assert contents(runs[0].store.root) == contents(runs[1].store.root)
    plain = run_of(tmp_path / "plain", variants=["plain", "ap_lite"], cycles=1)
    plain.go(pack=4)
    for step in plain.plan.trainings:
        assert plain.store.get(step.key, "record.json") == runs[0].store.get(step.key, "record.json")
    assert all(0 < row["dnr_after_unit_total"] < 1 for row in runs[0].rows())


def test_dead_neurons_are_those_that_a_cpu_counts(tmp_path: Path) -> None:
    """The trained networks of a GPU, measured again without it: but for outputs that rounding takes across 0."""
    changes = {"measure": "dnr", "variants": ["plain", "ap_lite"], "cycles": 1, "keep": "all"}
    run, again = (run_of(tmp_path / device, device=device, **changes) for device in ("cuda", "cpu"))
    run.go()
    measured = [step for step in run.plan.steps.values() if isinstance(step, Measure)]
    others = [(entry.key, entry.parts) for entry in run.store.list() if entry.key not in {one.key for one in measured}]
    archive.pack(run.store, tmp_path / "all.tar", others)
    archive.unpack(tmp_path / "all.tar", again.store)
    assert again.go().computed == len(measured) > 0
    for step in measured:
        gpu, cpu = (one.store.get(step.key, "record.json") for one in (run, again))
        for of in ("unit", "channel"):
            for what in ("static", "dynamic", "total"):
                assert json.loads(gpu)[of][what] == pytest.approx(json.loads(cpu)[of][what], abs=2e-4)
