"""`activeprune report` on real runs: finished, half finished, empty, failed, and several at once."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from activeprune.cli import main
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.report.differences import paired_table
from activeprune.report.gathering import gathered
from activeprune.report.rates import dead_table
from activeprune.report.records import RECORDS
from activeprune.report.report import Report
from activeprune.report.writing import FILES, write_tables

SMALL = ["--processes", "1", "--quiet", "--set", "cycles=1"]
QUICK = ["--no-figures", "--no-page"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "smoke"
    assert main(["run", "smoke", "--out", str(out), *SMALL, "--set", "seeds=3", "--set", "measure=[dnr]"]) == 0
    return out


def test_tables_are_written_beside_the_run(finished: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(finished)]) == 0
    shown = capsys.readouterr()
    assert all(str(finished / name) in shown.err for name in FILES)
    assert "smoke: paired differences of test accuracy" in shown.out
    assert "ap_lite − plain_rewind" in shown.out
    text = (finished / "tables.md").read_text()
    for part in ("test accuracy in %", "paired differences", "dead neurons", "device time", "paper's claims"):
        assert part in text
    assert "\\toprule" in (finished / "tables.tex").read_text()


def test_the_numbers_are_those_of_the_store(finished: Path) -> None:
    run = Run.opened(finished)
    write_tables(Report([gathered(run)]), finished)
    with (finished / "tables.csv").open() as file:
        read = list(csv.DictReader(file))
    rows = run.rows()
    assert len(read) == len({(row["variant"], row["cycle"]) for row in rows})
    for one in read:
        own = [row for row in rows if (row["variant"], row["cycle"]) == (one["variant"], int(one["cycle"]))]
        assert float(one["mean"]) == pytest.approx(fmean(row["accuracy"] for row in own), abs=1e-15)
        assert float(one["density"]) == own[0]["density"]


def test_json_keeps_its_cells_and_gains_keys(finished: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(finished), "--json", *QUICK]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["cells"] == json.loads((finished / "summary.json").read_text())["cells"]
    values = {(cell["variant"], cell["cycle"]): cell["values"] for cell in told["cells"]}
    assert [(one["variant"], one["against"], one["fair"]) for one in told["paired"]] == [
        ("ap_lite", "plain", False), ("ap_lite", "plain_rewind", True),
        ("ap_pro", "plain", False), ("ap_pro", "plain_rewind", True),
    ]  # fmt: skip
    for one in told["paired"]:
        first, second = values[one["variant"], one["cycle"]], values[one["against"], one["cycle"]]
        assert one["values"] == {seed: first[seed] - second[seed] for seed in first}
    assert told["effort"]["in_all"]["trainings"] == told["effort"]["in_all"]["done"]
    assert told["effort"]["variants"]["plain"]["seconds"] > 0
    assert {claim["status"] for claim in told["claims"]} == {"not run", "holds"}
    assert told["paper"] == []


def test_several_runs_are_one_report(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    other = tmp_path / "lamp"
    small = ["--set", "method=lamp", "--set", "chain=rewind", "--set", "variants=[plain,ap_lite]"]
    assert main(["run", "smoke", "--out", str(other), *SMALL, *small]) == 0
    capsys.readouterr()
    assert main(["report", str(finished), str(other), "--out", str(tmp_path / "both")]) == 0
    shown = capsys.readouterr()
    assert "one seed: no test" in shown.out
    text = (tmp_path / "both" / "tables.md").read_text()
    assert "## smoke: resnet8 on digits, global_magnitude, chain reinit" in text
    assert "## lamp: resnet8 on digits, lamp, chain rewind" in text
    assert not (other / "tables.md").exists()
    assert main(["report", str(finished), str(other), "--json"]) == 0
    shown = capsys.readouterr()
    assert [len(one["cells"]) for one in json.loads(shown.out)["reports"]] == [8, 4]
    assert "--out DIR" in shown.err


def test_a_grid_is_one_report_with_its_sweep(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "sweep"
    assert main(["run", "smoke", "--out", str(out), *SMALL, "--set", "variants=ap_lite", "--grid", "q=0.02,0.05"]) == 0
    capsys.readouterr()
    assert main(["report", str(out), "--json", *QUICK]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [study["title"] for study in told["studies"]] == ["sweep q=0.02", "sweep q=0.05"]
    assert all(study["paired"] == [] for study in told["studies"])
    assert main(["report", str(out), *QUICK]) == 0
    assert "test accuracy in % against q" in (out / "tables.md").read_text()


def test_an_empty_and_a_half_finished_run_are_reported(finished: Path, tmp_path: Path, capsys) -> None:
    empty = started("table1", tmp_path / "empty", changes={"seeds": 2})
    empty.write_study()
    more = started("smoke", tmp_path / "more", finished.parent / ".store", changes={"cycles": 2, "seeds": 4})
    more.write_study()
    for run in (empty, more):
        assert main(["report", str(run.out), *QUICK]) == 0
        shown = capsys.readouterr()
        assert "missing" in shown.out
        assert "reported trainings are missing" in shown.out
        assert main(["report", str(run.out), "--json", *QUICK]) == 0
        json.loads(capsys.readouterr().out)
    assert "beside the paper's table 1" in (tmp_path / "empty" / "tables.md").read_text()
    assert "(3 of 4)" in (tmp_path / "more" / "tables.md").read_text()


def test_a_failed_training_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["run", "smoke", "--out", str(tmp_path / "run"), *SMALL, "--set", "lr=1e30"]) == 1
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), *QUICK]) == 0
    assert "failed: plain cycle 0 seed 0: loss" in capsys.readouterr().out
    assert "failed: plain cycle 0 seed 0: loss" in (tmp_path / "run" / "tables.md").read_text()


def test_a_folder_that_cannot_be_written_is_still_reported(finished: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert main(["report", str(finished), "--out", str(tmp_path / "file" / "below")]) == 2
    assert "Traceback" not in capsys.readouterr().err
    for name in FILES:
        (finished / name).unlink(missing_ok=True)
        (finished / name).mkdir()  # in the way of the file
    try:
        assert main(["report", str(finished)]) == 0
        assert "the report is not written" in capsys.readouterr().err
    finally:
        for name in FILES:
            os.rmdir(finished / name)


def test_a_report_is_the_same_twice(finished: Path, tmp_path: Path) -> None:
    run = gathered(Run.opened(finished))
    first, second = (write_tables(Report([run]), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.slow
def test_a_report_is_made_again_from_its_records(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Without the run and its store, to the byte; in place, from the folder or from the file."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["report", str(finished), "--out", str(first)]) == 0
    kept = {path.relative_to(first): path.read_bytes() for path in first.rglob("*") if path.is_file()}
    assert Path("report.html") in kept
    assert main(["report", str(first / RECORDS), "--out", str(second)]) == 0
    assert main(["report", str(first), *QUICK]) == 0
    for folder in (first, second):
        assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept
    assert "smoke: test accuracy in %" in capsys.readouterr().out
    assert main(["report", str(first), str(finished), "--json", *QUICK]) == 0
    both = json.loads(capsys.readouterr().out)["reports"]
    assert both[0]["paired"] == both[1]["paired"]
    assert both[0]["cells"] == both[1]["cells"]


def test_records_cannot_be_followed(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(finished), "--out", str(tmp_path), *QUICK]) == 0
    assert main(["report", str(tmp_path), "--live"]) == 2
    assert "records of a report do not change" in capsys.readouterr().err


def test_a_store_that_is_gone_is_told_of_and_the_report_stays(finished: Path, tmp_path: Path, capsys) -> None:
    moved = tmp_path / "runs"
    shutil.copytree(finished.parent, moved)
    assert main(["report", str(moved / "smoke"), *QUICK]) == 0
    before = (moved / "smoke" / "tables.md").read_bytes()
    (moved / ".store").rename(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["report", str(moved / "smoke")]) == 2
    assert "the store of" in capsys.readouterr().err
    assert (moved / "smoke" / "tables.md").read_bytes() == before


@pytest.mark.parametrize("harm", ["a byte", "another size", "the manifest"])
def test_what_is_damaged_is_named(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture, harm: str) -> None:
    shutil.copytree(finished.parent, tmp_path / "runs")
    run = Run.opened(tmp_path / "runs" / "smoke")
    key = run.plan.cells[0].training.key
    folder = run.store.root / "objects" / key[:2] / key
    path = folder / ("manifest.json" if harm == "the manifest" else "record.json")
    assert path.is_file()
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:] if harm == "a byte" else b"{bad")
    assert main(["report", str(run.out), *QUICK]) == 0
    shown = capsys.readouterr()
    assert key in shown.out + shown.err
    assert "Traceback" not in shown.err
    assert "trainings are missing" in shown.out


def test_a_run_file_of_other_types_is_refused_in_one_line(finished: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"store": 5, "imports": [], "import_from": ""}')
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "its store is no path" in capsys.readouterr().err


def test_paired_differences_and_rates_are_files_for_programs(finished: Path, tmp_path: Path) -> None:
    run = gathered(Run.opened(finished))
    write_tables(Report([run]), tmp_path)
    for name, make in (("paired.csv", paired_table), ("dead_neurons.csv", dead_table)):
        with (tmp_path / name).open() as file:
            read = list(csv.DictReader(file))
        records = make(run).records
        assert [(one["variant"], int(one["cycle"])) for one in read] == [(r["variant"], r["cycle"]) for r in records]
    unmeasured = replace(run, study=run.study.model_copy(update={"measure": ()}))
    write_tables(Report([unmeasured]), tmp_path)
    assert not (tmp_path / "dead_neurons.csv").exists()
