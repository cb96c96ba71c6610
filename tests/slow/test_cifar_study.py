"""Table 1 from the command line on the real CIFAR-10, cut down to what a CPU does in a minute."""

import json
from pathlib import Path

import pytest

from activeprune.cli import main
from tests.data.real import official_cifar


@pytest.mark.slow
def test_table_1_runs_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", str(tmp_path / "cache"))
    folder = official_cifar("cifar10", tmp_path / "cifar10")
    changes = ["epochs=1", "cycles=1", "report_cycles=[1]", "seeds=1", "data.limit=2000", "precision=fp32"]
    arguments = [part for change in [*changes, f"data.path={folder}"] for part in ("--set", change)]
    assert main(["run", "table1", "--out", str(tmp_path / "runs" / "table1"), *arguments, "--json", "--quiet"]) == 0
    cells = {(c["variant"], c["cycle"]): c for c in json.loads(capsys.readouterr().out)["cells"]}
    assert set(cells) == {(v, c) for v in ("plain", "plain_rewind", "ap_lite", "ap_pro") for c in (0, 1)}
    assert all(0.05 < cell["mean"] < 0.3 for cell in cells.values())  # one epoch of a warm-up of 55: about a tenth
    assert {round(cell["density"], 3) for cell in cells.values()} == {1.0, 0.8}
    assert cells["ap_lite", 1]["values"] == cells["ap_pro", 1]["values"]  # the first cycle is the same
