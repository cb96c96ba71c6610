"""`activeprune report`, as a person types it."""

import json
from pathlib import Path

from activeprune.cli import main
from tests.cli.makers import SMALL, Captured, refused


def test_a_run_prints_its_table_and_a_report_prints_it_again(finished: Path, capsys: Captured) -> None:
    assert main(["run", "smoke", "--out", str(finished), *SMALL]) == 0
    first = capsys.readouterr().out
    assert main(["report", str(finished)]) == 0
    assert capsys.readouterr().out.startswith(first)
    assert "λ 80.0 %" in first
    assert [line.split()[0] for line in first.splitlines()[-2:]] == ["plain", "ap_lite"]


def test_a_report_for_machines_has_the_cells_of_the_table(finished: Path, capsys: Captured) -> None:
    assert main(["report", str(finished), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(cell["variant"], cell["cycle"]) for cell in cells] == [
        ("plain", 0), ("plain", 1), ("ap_lite", 0), ("ap_lite", 1),
    ]  # fmt: skip
    assert all({"variant", "cycle", "density", "mean", "std", "seeds", "values"} <= set(cell) for cell in cells)
    assert cells[1]["values"] == {"0": cells[1]["mean"]}


def test_a_folder_without_a_run_is_one_line_and_exit_code_2(capsys: Captured) -> None:
    assert "nowhere holds no run" in refused(["report", "nowhere"], capsys)
