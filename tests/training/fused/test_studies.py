"""A study on the fused engine, whose kernels a CPU emulates: the size of a pack leaves no trace in the store."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from activeprune.data import Dataset
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.training.choosing import Engines
from activeprune.training.fused.lanes import Fused
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


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_packs_of_any_size_leave_the_same_bytes(
    device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engines, "_kinds", lambda engines, training, dataset: [Fused])  # as on a GPU
    alone, packed = (run_of(tmp_path / str(pack) / "run", pack) for pack in (1, 3))
    assert contents(packed.store.root) == contents(alone.store.root)
    told = [packed.store.provenance(step.key) for step in packed.plan.trainings]
    assert {provenance["engine"] for provenance in told} == {"fused"}
    assert max(provenance["pack"] for provenance in told) > 1
