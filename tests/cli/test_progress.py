"""What a run says while it runs."""

import io
import re
import time
from pathlib import Path

import pytest

from activeprune.cli import main
from activeprune.cli.progress import Log
from activeprune.experiment.search import started
from activeprune.training import Epoch
from tests.cli.makers import SMALL, Captured


def test_progress_in_a_log_is_one_line_an_epoch(tmp_path: Path, capsys: Captured) -> None:
    arguments = [argument for argument in SMALL if argument != "--quiet"]
    out = tmp_path / "my run"
    assert main(["run", "smoke", "--out", str(out), *arguments, "--csv", "--tensorboard"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"5 steps to do on the CPU, up to \d at a time(; torch finds no GPU here)?", lines[0])
    assert sum(" epoch 1/1 loss " in line for line in lines) == 3
    assert lines[-2].endswith("0 left")
    assert lines[-1] == f"results are in {out}: activeprune report '{out}' prints them again"
    assert any("train after cycle 1, λ 80.0%" in line for line in lines)
    assert len((out / "rows.csv").read_text().splitlines()) == 5
    assert len(list((out / "tensorboard").glob("*/events*"))) == 3


def test_speed_is_that_of_all_networks_that_are_trained_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two side by side show twice the images that one shows in the same time."""
    one, other = started("smoke", tmp_path / "run", changes={"seeds": 2, "cycles": 1}).plan.trainings[:2]
    said = io.StringIO()
    log = Log(said, {}, "here")
    for number, seconds in ((0, 100.0), (1, 110.0), (2, 115.0)):
        monkeypatch.setattr(time, "monotonic", lambda now=seconds: now)
        for step in (one, other):
            log.epoch(step, Epoch(number, 10 * (number + 1), 0.1, 2.0, 0.1, 2.0, 0.1, 0.1), 3)
    images = 10 * one.training.batch
    told = [line.rpartition(" test 10.00%")[2] for line in said.getvalue().splitlines()]
    speeds = [f" {2 * images / seconds:,.0f} images/s in all" for seconds in (10, 10, 5, 5)]
    assert told == ["", "", *speeds]
