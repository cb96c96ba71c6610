"""`activeprune report` writes the page of runs, and says in one line what it cannot do."""

from pathlib import Path

import pytest

from activeprune.cli import main, reports
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.report.gathering import gathered
from activeprune.report.report import Report
from activeprune.report.writing import PAGE, draw_page

from .pages import page_of, provenance_rows, read


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    small = ["--set", "cycles=1", "--set", "variants=[plain,ap_pro]"]
    assert main(["run", "smoke", "--out", str(out), "--processes", "1", "--quiet", *small]) == 0
    return out


def test_report_writes_the_page_and_names_it_last(finished: Path, capsys, monkeypatch) -> None:
    opened = []
    monkeypatch.setattr(reports.webbrowser, "open", opened.append)
    assert main(["report", str(finished), "--no-figures", "--open"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"the page is {finished / PAGE}"
    assert opened == [(finished / PAGE).as_uri()]
    first = (finished / PAGE).read_bytes()
    assert draw_page(Report([gathered(Run.opened(finished))]), finished).read_bytes() == first
    (finished / PAGE).unlink()
    assert main(["report", str(finished), "--no-figures", "--no-page"]) == 0
    assert not (finished / PAGE).exists()


def test_the_page_has_the_keys_and_accuracies_of_the_store(finished: Path) -> None:
    opened = Run.opened(finished)
    shown = page_of(gathered(opened))
    told = {(row.key, row.accuracy) for row in provenance_rows(shown)}
    assert told == {(row["key"], row["accuracy"]) for row in opened.rows()}
    masks = {cell.masks.key for cell in opened.plan.cells if cell.masks is not None}
    assert masks <= {one.text for one in shown.all("code")}
    assert "activeprune 0." in shown.all("dl")[0].text
    assert "torch 2." in shown.all("dl")[0].text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--live", "--json"], "--live writes a page"),
        (["--live", "--no-page"], "--live writes a page"),
        (["--live", "--every", "0"], "--every"),
    ],
)
def test_what_does_not_go_together_is_one_line(finished: Path, arguments: list[str], message: str, capsys) -> None:
    assert main(["report", str(finished), *arguments]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_folders_that_are_no_runs_and_runs_without_a_folder_are_one_line(
    finished: Path, tmp_path: Path, capsys
) -> None:
    assert main(["report", str(tmp_path), "--live"]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main(["report", str(finished), str(finished), "--live"]) == 2
    assert "--out DIR is needed" in capsys.readouterr().err


def test_runs_of_different_studies_and_an_empty_one_share_a_page(finished: Path, tmp_path: Path) -> None:
    empty = started("table1", tmp_path / "empty", changes={"seeds": 2})
    empty.write_study()
    assert main(["report", str(finished), str(empty.out), "--out", str(tmp_path / "both"), "--no-figures"]) == 0
    shown = read((tmp_path / "both" / PAGE).read_text())
    assert [one.text for one in shown.all("h2")] == ["tiny", "empty", "All runs"]
    assert "0 of 64 reported trainings done" in shown.all("main")[0].text
