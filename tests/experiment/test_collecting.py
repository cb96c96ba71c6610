"""What a store still needs is kept, whoever needs it; the rest goes."""

import shutil
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.collecting import collect, registered
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.artifacts import STATE
from tests.experiment.makers import TINY, contents, go


@pytest.mark.parametrize("text", ["{", '{"out": 5, "study": "", "imports": [], "import_from": ""}'])
def test_a_run_of_somebody_else_that_cannot_be_read_stops_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / ".store" / "runs").mkdir(parents=True)
    (tmp_path / ".store" / "runs" / "0.json").write_text(text)
    run, _ = go(tmp_path, keep="records")
    assert all(row["accuracy"] is not None for row in run.rows())
    with pytest.raises(ap.InputError, match=r"0\.json cannot be read"):
        collect(run.store)


@pytest.mark.parametrize(("keep", "left"), [("all", 3), ("frontier", 0), ("records", 0)])
def test_what_is_kept_of_weights(tmp_path: Path, keep: str, left: int) -> None:
    """Under reinit the next cycle starts from new weights, so that masks and records are all it needs."""
    run, _ = go(tmp_path, keep=keep)
    kept = [entry.key for entry in run.store.list() if STATE in entry.parts]
    assert len(kept) == left
    assert all(row["accuracy"] is not None for row in run.rows())


def test_the_frontier_is_what_one_more_cycle_needs(tmp_path: Path) -> None:
    run, _ = go(tmp_path, chain="continue", variants=["plain"], keep="frontier")
    kept = {entry.key for entry in run.store.list() if STATE in entry.parts}
    assert kept == {run.plan.cells[-1].training.key}  # what cycle 2 would prune
    _, counting = go(tmp_path, chain="continue", variants=["plain"], keep="frontier", cycles=2)
    assert [step.kind for step in counting.steps] == ["prune", "train"]


def test_nothing_is_collected_that_another_run_of_the_store_keeps(finished: Path, tmp_path: Path) -> None:
    first, _ = go(tmp_path, keep="all")
    second = started("smoke", tmp_path / "second", changes={**TINY, "keep": "records"})
    second.go()
    assert collect(first.store, [second.study]) == 0
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_checkpoints_that_nobody_asks_for_are_collected(tmp_path: Path) -> None:
    run, _ = go(tmp_path)
    longer = started("smoke", tmp_path / "longer", changes={**TINY, "epochs": "3ep"})
    longer.write_study()
    folder = tmp_path / ".store" / "checkpoints"
    folder.mkdir(exist_ok=True)
    finished, wanted, foreign = run.plan.trainings[0].key, longer.plan.trainings[0].key, "0" * 32
    for key in (finished, wanted, foreign):
        (folder / f"{key}.safetensors").write_bytes(b"12345")
    assert collect(run.store) == 10
    assert [path.stem for path in folder.iterdir()] == [wanted]


def test_a_store_that_was_moved_knows_what_its_runs_need(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run, _ = go(tmp_path / "here")
    kept = contents(run.store.root)
    shutil.move(tmp_path / "here", tmp_path / "there")
    store = FolderStore(tmp_path / "there" / ".store")
    assert collect(store) == 0
    assert not any(known.gone for known in registered(store))
    shutil.rmtree(tmp_path / "there" / "run")
    assert main(["store", "gc", str(store.root)]) == 0
    assert "though the folder is gone (--forget lets it go)" in capsys.readouterr().out
    assert contents(store.root) == kept
    with pytest.raises(ap.InputError, match="knows of no run that could say what it still needs"):
        collect(store, forget=True)


def test_only_folders_that_are_gone_are_forgotten_and_notes_are_no_runs(tmp_path: Path) -> None:
    stays, goes = (started("smoke", tmp_path / name, tmp_path / "store") for name in ("stays", "goes"))
    for run in (stays, goes):
        run.write_study()
    (tmp_path / "store" / "runs" / "notes.txt").write_text("mine")
    shutil.rmtree(tmp_path / "goes")
    assert len(registered(stays.store)) == 2
    assert collect(stays.store, forget=True) == 0
    assert [known.out.resolve() for known in registered(stays.store)] == [(tmp_path / "stays").resolve()]
