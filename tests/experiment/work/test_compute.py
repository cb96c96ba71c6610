"""One step, computed."""

from pathlib import Path

import pytest

import activeprune as ap
from activeprune.core.methods import METHODS
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.store import FolderStore
from activeprune.experiment.work.compute import Compute
from tests.experiment.makers import go


@pytest.mark.parametrize("method", ["global_gradient", "lookahead", "lamp", "fisher", "random"])
def test_methods_get_what_they_need(tmp_path: Path, method: str) -> None:
    more = {"score_batches": 1} if METHODS[method].batches else {}
    run, _ = go(tmp_path, method=method, variants=["ap_lite"], **more)
    assert all(row["accuracy"] is not None for row in run.rows())


def test_what_starts_a_chain_is_no_step_to_compute(tmp_path: Path) -> None:
    start = Plan(read_study("smoke")).trainings[0].start
    with pytest.raises(ap.InputError, match="a step of kind init is not computed by itself"):
        Compute(FolderStore(tmp_path))(start)
