"""What a run says while it runs."""

import re
from pathlib import Path

from activeprune.cli import main
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
