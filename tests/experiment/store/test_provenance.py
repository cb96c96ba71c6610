"""Provenance is told as it always was, and what is odd in it is left out: no result depends on it."""

import math
from pathlib import Path

import pytest
import torch

from activeprune.cli import main
from activeprune.experiment.search import started
from activeprune.experiment.store.provenance import Provenance, StepTime, sound
from activeprune.experiment.work import speed
from activeprune.machine import CPU, described, one_thread
from tests.helpers import take_out

TOLD = {
    "kind": "train",
    "inputs": {},
    "machine": "an abacus",
    "seconds": 2.5,
    "pack": 3,
    "speed": {"of": "0123", "seconds_per_step": 0.5, "steps_per_epoch": 9},
}
ODD = {
    "kind": 3,
    "inputs": {"start": None},
    "machine": ["here"],
    "finished": 2026,
    "seconds": "long",
    "images_per_second": math.nan,
    "engine": {},
    "pack": 0,
    "speed": {"of": "0123"},
}


def test_what_is_known_is_told_and_understood_again() -> None:
    how = Provenance(
        kind="train", inputs={}, machine="an abacus", seconds=2.5, pack=3, speed=StepTime("0123", 0.5, 9)
    )  # fmt: skip
    assert how.as_dict() == TOLD
    assert Provenance.of(TOLD) == how


@pytest.mark.parametrize("name", [*ODD])
def test_what_is_odd_is_as_if_it_were_not_told(name: str) -> None:
    assert sound({**TOLD, name: ODD[name]}) == {key: value for key, value in TOLD.items() if key != name}
    assert sound({**TOLD, name: None}) == {key: value for key, value in TOLD.items() if key != name}
    assert getattr(Provenance.of({**TOLD, name: ODD[name]}), name) is None


def test_a_report_and_a_dry_run_do_without_what_is_odd(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = started("smoke", tmp_path / "run", changes={"variants": "plain", "cycles": 1})
    run.go(pack=1)
    with one_thread(CPU):
        here = described(torch.device("cpu"))
    for entry in [*run.store.list()]:
        parts = {name: run.store.get(entry.key, name) for name in entry.parts}
        take_out(run.store, entry.key)
        run.store.put(entry.key, parts, {**ODD, "machine": here, "pack": 2})
    assert main(["report", str(run.out), "--no-figures"]) == 0
    assert "λ 80.0 %" in capsys.readouterr().out
    assert speed.known(run.store, CPU).of(run.study.training) is None
