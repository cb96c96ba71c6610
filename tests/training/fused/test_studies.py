"""A study on the fused engine, whose kernels a CPU emulates: the size of a pack leaves no trace in the store, and a dry
run may time packs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from activeprune.cli import main
from activeprune.data import Dataset
from activeprune.experiment.outlook import outlook
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.work import speed
from activeprune.experiment.work.speed import Speed, Speeds
from activeprune.training import choosing
from activeprune.training.choosing import Engines
from activeprune.training.fused.lanes import Fused
from activeprune.training.pacing import Trial
from tests.experiment.makers import contents
from tests.gpu.makers import patches

CHANGES = {
    "network": "resnet8", "data": "tests.training.fused.test_studies:few_patches", "precision": "bf16", "batch": 8,
    "epochs": "2ep", "augment": "crop_flip", "seeds": 2, "cycles": 1, "variants": ["plain", "ap_lite"],
}  # fmt: skip


def few_patches(path: None = None) -> Dataset:
    whole = patches()
    train, test = (type(part)(part.pixels[:count], part.labels[:count]) for part, count in
                   ((whole.train, 40), (whole.test, 20)))  # fmt: skip
    return Dataset("few_patches", whole.classes, train, test)


def run_of(folder: Path, pack: int) -> Run:
    run = started("smoke", folder, changes=CHANGES)
    outcome = run.go(pack=pack)
    assert outcome.failed == outcome.blocked == ()
    return run


@pytest.fixture
def on_the_fused_engine(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr(Engines, "_kinds", lambda engines, training, dataset: [Fused])


@pytest.mark.slow
@pytest.mark.usefixtures("on_the_fused_engine")
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_packs_of_any_size_leave_the_same_bytes(tmp_path: Path) -> None:
    alone, packed = (run_of(tmp_path / str(pack) / "run", pack) for pack in (1, 3))
    assert contents(packed.store.root) == contents(alone.store.root)
    told = [packed.store.provenance(step.key) for step in packed.plan.trainings]
    assert {provenance["engine"] for provenance in told} == {"fused"}
    assert max(provenance["pack"] for provenance in told) > 1


@pytest.mark.usefixtures("on_the_fused_engine")
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
@pytest.mark.parametrize(("pack", "sizes"), [(None, [1, 2]), (2, [1, 2]), (1, [1])])
def test_a_dry_run_times_packs_where_trainings_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, pack: int | None, sizes: list[int]
) -> None:
    """Two networks go together at most: two seeds, and both of them again once pruned."""
    monkeypatch.setattr(choosing, "TRIAL_FUSED", Trial((1, 2, 3), steps=1, worth=0.0))
    timed: list[Speed] = []
    measured = speed.measured
    monkeypatch.setattr(speed, "measured", lambda *of: timed.append(measured(*of)) or timed[-1])
    changes = {**CHANGES, "variants": "[plain]"}
    settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    packs = [] if pack is None else ["--pack", str(pack)]
    asked = ["--processes", "1", "--dry-run", "--measure", "--json"]
    assert main(["run", "smoke", "--out", str(tmp_path / "run"), *settings, *packs, *asked]) == 0
    told = capsys.readouterr()
    (one,) = timed
    assert list(one.packs) == sizes
    assert one.seconds == one.packs[sizes[-1]] / sizes[-1] > 0
    job = started("smoke", tmp_path / "run", changes={**CHANGES, "variants": ["plain"]})
    speeds = Speeds()
    speeds.add(job.plan.trainings[0].training, one)
    steps = one.steps_of(job.plan.trainings[0].training)
    foretold = json.loads(told.out)["seconds"]
    assert foretold == pytest.approx(2 * steps * one.in_packs(2))  # the two seeds, twice
    assert foretold == outlook(job.plan, job.store, speeds).seconds
    assert "resnet8: a few steps are timed first" in told.err
