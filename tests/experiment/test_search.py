"""Grids: one plan of many studies, a winner by validation accuracy, and one folder that says it all."""

import json
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import read_grid
from activeprune.experiment.runs import Run
from activeprune.experiment.search import GRID_FILE, WINNER_FILE, Search, folder_name, opened, started

SMALL = ["--set", "variants=[plain,ap_lite]", "--set", "cycles=1"]
GRID = [*SMALL, "--grid", "q=0.01,0.05"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "search"
    assert main(["run", "smoke", "--out", str(out), *GRID, "--processes", "2", "--quiet"]) == 0
    return out


def test_studies_of_a_grid_share_what_does_not_depend_on_it(finished: Path) -> None:
    """q enters where AP prunes: the dense training, plain's pruning and plain's retraining are the same for all."""
    search = Search.opened(finished)
    assert list(search.runs) == ["q=0.01", "q=0.05"]
    alone = sum(len(Plan(study).trainings) for study in search.studies)
    assert (alone, len(search.plan.trainings)) == (6, 4)
    kept = [entry.key for entry in search.store.list()]
    assert sorted(kept) == sorted(key for key, step in search.plan.steps.items() if step.kind != "init")


@pytest.mark.slow
def test_a_grid_is_reported_as_one(finished: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["report", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("test accuracy in %") == 2
    assert main(["report", str(finished), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [study["label"] for study in told["studies"]] == ["q=0.01", "q=0.05"]
    assert told["best"] == max(told["studies"], key=lambda study: study["validation"])["label"]
    assert f"best by validation accuracy: {told['best']} " in shown
    assert main(["run", "smoke", "--out", str(finished), *GRID, "--quiet", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["best"] == told["best"]
    assert len(first["studies"]) == len(told["studies"])
    for run, reported in zip(first["studies"], told["studies"], strict=True):
        assert run == {key: reported[key] for key in run}


def test_rows_of_a_grid_say_which_study_they_belong_to(finished: Path) -> None:
    rows = ap.results(finished)
    assert {row["study"] for row in rows} == {"q=0.01", "q=0.05"}
    assert len(rows) == 2 * 4
    dense = {row["key"] for row in rows if row["cycle"] == 0}
    assert len(dense) == 1


def test_from_python_a_grid_is_the_same(finished: Path, tmp_path: Path) -> None:
    changes = {"variants": ["plain", "ap_lite"], "cycles": 1}
    search = ap.run("smoke", out=tmp_path / "search", set=changes, grid={"q": [0.01, 0.05]})
    assert search.rows() == ap.results(finished)
    assert (tmp_path / "search" / "winner.yaml").read_text() == (finished / "winner.yaml").read_text()


def test_a_dry_run_of_a_grid_counts_what_is_shared_once(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """9 q-sweep trainings a seed: T1, then each cycle's prunings; only AP's retrainings differ between the four q."""
    arguments = ["run", "q-sweep-resnet20", "--set", "seeds=1", "--out", str(tmp_path / "sweep"), "--dry-run"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trainings"]["total"] == 6 + 3 + 4 * 3  # T1 … T6, plain's retrainings, ap_lite's for each q
    assert told["trainings"]["shared"] == 6 + 3
    assert main(arguments) == 0
    assert "a grid of 4 studies" in capsys.readouterr().out
    assert not (tmp_path / "sweep").exists()


def test_a_run_in_a_grids_folder_takes_its_place_and_the_other_way_round(tmp_path: Path) -> None:
    studies = read_grid("smoke", grid={"q": [0.01, 0.05]})
    search = Search.new(studies, tmp_path / "both")
    search.write_study()
    run = Run(next(iter(studies.values())), tmp_path / "both", search.store)
    assert isinstance(opened(tmp_path / "both"), Search)
    run.write_study()
    assert isinstance(opened(tmp_path / "both"), Run)
    search.write_study()
    assert isinstance(opened(tmp_path / "both"), Search)


def test_a_grid_without_results_has_no_winner_and_knows_what_is_written(tmp_path: Path) -> None:
    search = Search.new(read_grid("smoke", grid={"q": [0.01, 0.05]}), tmp_path / "grid")
    assert not search.is_written()
    search.write_study()
    assert search.is_written()
    assert not Search.new(read_grid("smoke", grid={"q": [0.01, 0.02]}), tmp_path / "grid").is_written()
    search.write_records()
    assert search.best() is None
    assert not (tmp_path / "grid" / WINNER_FILE).exists()
    assert [path.name for path in sorted((tmp_path / "grid").glob("*/summary.json"))] == ["summary.json"] * 2


def test_labels_that_are_no_names_of_folders_get_one() -> None:
    assert folder_name("lr=0.1,batch=64") == "lr=0.1,batch=64"
    odd, other = folder_name("data.path=/a/b"), folder_name("data.path=/a_b")
    assert odd != other
    assert "/" not in odd + other
    assert len(folder_name("x" * 1000)) < 120


@pytest.mark.parametrize("text", ["{", "[]", '{"studies": {}}', '{"studies": []}'])
def test_a_list_of_studies_that_cannot_be_read_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / GRID_FILE).write_text(text)
    with pytest.raises(ap.InputError, match=r"grid\.json cannot be read"):
        ap.results(tmp_path)


@pytest.mark.parametrize("key", ["device", "keep"])
def test_what_is_not_part_of_a_result_cannot_stand_in_a_grid(key: str) -> None:
    with pytest.raises(ap.InputError, match=f"grid: {key} does not change a result"):
        read_grid("smoke", grid={key: ["a", "b"]})


def test_a_run_is_the_only_one_of_its_runs_and_a_grid_has_each_by_its_label(tmp_path: Path) -> None:
    alone = started("smoke", tmp_path / "alone")
    assert alone.runs == {"": alone}
    grid = started("smoke", tmp_path / "grid", grid={"q": [0.01, 0.05]})
    assert {label: run.study.q for label, run in grid.runs.items()} == {"q=0.01": 0.01, "q=0.05": 0.05}
    assert [run.study for run in grid.runs.values()] == [*grid.studies]
