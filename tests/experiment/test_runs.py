"""A study from beginning to end: the same results however it is run, and what is told of it."""

import json
import sys
from pathlib import Path

import pytest
import torch

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.findings import summaries
from activeprune.experiment.imports import Imports
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.steps import Train
from activeprune.experiment.runs import RUN_FILE, Run, store_beside
from activeprune.experiment.search import started
from activeprune.experiment.store import files
from activeprune.machine import CPU, one_thread
from tests.experiment.makers import TINY, contents, copied, go


def test_a_run_fills_its_table(finished: Path) -> None:
    run = Run.opened(finished / "run")
    rows = run.rows()
    assert [(row["variant"], row["cycle"]) for row in rows] == [
        ("plain", 0), ("plain", 1), ("ap_lite", 0), ("ap_lite", 1),
    ]  # fmt: skip
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    assert rows[0]["accuracy"] == rows[2]["accuracy"]
    densities = {row["cycle"]: row["density"] for row in rows}
    total = sum(mask.numel() for mask in ap.Masks.dense(ap.build("resnet8", in_channels=1)).values())
    assert densities == {0: 1.0, 1: (total - int(0.2 * total + 0.5)) / total}
    assert not run.plan.todo(run.store).missing


def test_the_same_command_again_computes_nothing(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    before = contents(folder / ".store")
    _, counting = go(folder)
    assert counting.steps == []
    assert contents(folder / ".store") == before


def test_more_seeds_compute_only_what_is_new(finished: Path, tmp_path: Path) -> None:
    run, counting = go(copied(finished, tmp_path), seeds=2)
    assert {step.seed for step in counting.steps} == {1}
    assert [cell.seeds for cell in summaries(run.rows())] == [2, 2, 2, 2]


def test_two_stores_hold_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    go(tmp_path)
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_torchs_threads_are_given_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        go(tmp_path, variants=["plain"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_failed_training_is_named_and_what_follows_is_blocked(tmp_path: Path) -> None:
    run, counting = go(tmp_path, lr=1e30)
    rows = run.rows()
    assert rows[0]["accuracy"] is None
    assert "loss" in rows[0]["failure"]
    cells = summaries(rows)
    assert (cells[0].mean, cells[0].failed, cells[0].seeds) == (None, [0], 0)
    todo = run.plan.todo(run.store)
    assert todo.ready == ()
    assert {step.kind for step in todo.blocked} == {"train", "prune"}
    assert len(counting.steps) == 1


def test_a_training_that_fails_before_the_rewind_epoch_ends_the_run(tmp_path: Path) -> None:
    run, counting = go(tmp_path, lr=1e30, chain="rewind", rewind_epoch=1, epochs="3ep", variants=["plain"])
    assert len(counting.steps) == 1
    assert run.plan.todo(run.store).ready == ()
    assert [row["accuracy"] for row in run.rows()] == [None, None]


@pytest.mark.parametrize(("epochs", "rewind_epoch"), [("9it", 2), ("10it", 2), ("9it", 6)])
def test_rewinding_to_the_end_of_some_iterations_is_refused(tmp_path: Path, epochs: str, rewind_epoch: int) -> None:
    """Five of which are an epoch: a study cannot know that, but the first training does."""
    late = {"data.limit": 200, "batch": 32, "chain": "rewind", "variants": ["plain"]}
    says = f"rewind_epoch = {rewind_epoch}: a training of {epochs}, which has 2 epochs here, needs an earlier one"
    with pytest.raises(ap.InputError, match=says):
        go(tmp_path, epochs=epochs, rewind_epoch=rewind_epoch, **late)


def test_a_pruning_that_fails_is_named_and_the_other_seeds_go_on(tmp_path: Path) -> None:
    """All weights but a few are excluded, so that the second cycle finds nothing left to prune."""
    changes = {**TINY, "variants": ["plain"], "seeds": 2, "cycles": 2, "include": "conv", "p": 0.999, "q": 0.0}
    run = started("smoke", tmp_path / "run", changes=changes)
    outcome = run.go()
    assert len(outcome.failed) == 2
    assert all("cycle 2 prune" in line and "nothing left to prune" in line for line in outcome.failed)
    assert [row["accuracy"] is not None for row in run.rows()] == [True, True, False] * 2


@pytest.mark.parametrize("chain", ["rewind", "continue"])
def test_the_other_chains_run(tmp_path: Path, chain: str) -> None:
    variants = ["plain", "plain_rewind", "ap_lite", "ap_pro", "no_rewind", "solo", "ap_lite_literal"]
    more = {"rewind_epoch": 1} if chain == "rewind" else {"retrain": "finetune"}
    run, _ = go(tmp_path, chain=chain, variants=variants, epochs="2ep", **more)
    cells = {(cell.variant, cell.cycle): cell for cell in summaries(run.rows())}
    assert all(cell.mean is not None for cell in cells.values())
    others = {cell.density for (variant, cycle), cell in cells.items() if cycle and variant != "ap_lite_literal"}
    assert len(others) == 1
    assert cells["ap_lite_literal", 1].density == pytest.approx(0.82 * 0.98, abs=1e-3)


def test_pruning_before_training_runs(tmp_path: Path) -> None:
    run, counting = go(tmp_path, method="snip", chain="at_init", variants=["plain"], score_batches=1)
    assert [step.kind for step in counting.steps] == ["train", "prune", "train"]
    assert all(row["accuracy"] is not None for row in run.rows())


def test_late_rewinding_goes_on_from_the_first_epochs(tmp_path: Path) -> None:
    """Cycle 1's training is the same whether it went on from the rewind state or was trained in one go."""
    _, counting = go(tmp_path / "a", chain="rewind", rewind_epoch=1, epochs="2ep")
    assert [step.last for step in counting.steps if isinstance(step, Train)].count(1) == 1
    go(tmp_path / "b", chain="rewind", epochs="2ep")
    late, plain = contents(tmp_path / "a" / ".store"), contents(tmp_path / "b" / ".store")
    dense = next(step for step in counting.steps if isinstance(step, Train) and step.masks is None and not step.last)
    shared = [name for name in late if dense.key in name]
    assert shared
    assert all(late[name] == plain[name] for name in shared)


def test_a_run_can_be_found_again_after_its_folder_was_moved(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path)
    assert [row["accuracy"] for row in ap.results(folder / "run")] == [
        row["accuracy"] for row in ap.results(finished / "run")
    ]


def test_from_python_it_is_the_same(finished: Path, tmp_path: Path) -> None:
    run = ap.run("smoke", out=tmp_path / "run", set=TINY)
    assert run.rows() == ap.results(finished / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "epochs.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert {"key", "seed", "epoch", "train_loss", "test_accuracy"} <= set(lines[0])
    assert len(json.loads((tmp_path / "run" / "summary.json").read_text())["cells"]) == 4


def test_another_study_does_not_run_in_the_same_folder_at_the_same_time(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=TINY)
    with files.Sharing(run.out) as folder:
        run.write_study()
        folder.share()
        assert started("smoke", tmp_path / "run", changes=TINY).go().computed == 5
        with pytest.raises(ap.InputError, match="another process is running another study in"):
            started("smoke", tmp_path / "run", changes={**TINY, "p": 0.3}).go()
    assert started("smoke", tmp_path / "run", changes={**TINY, "p": 0.3}).go().computed > 0


def test_layers_that_do_not_exist_are_found_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match="zzz"):
        go(tmp_path, include=["zzz"])
    assert contents(tmp_path / ".store") == {}


def test_a_shortfall_of_negative_weights_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """AP is to take almost all weights, of which only about a half are negative."""
    command = ["run", "smoke", "--out", str(tmp_path / "run"), "--set", "variants=[ap_lite]", "--set", "cycles=1",
               "--set", "p=0.9", "--set", "q=0.9", "--processes", "1", "--quiet"]  # fmt: skip
    assert main(command) == 0
    row = ap.results(tmp_path / "run")[-1]
    total = row["alive"] + row["by_method"] + row["by_rule"]
    assert row["by_method"] + row["by_rule"] == int(0.9 * total + 0.5)
    assert row["by_rule"] + row["shortfall"] == int(0.9 * total)
    expected = f"ap_lite cycle 1 seed 0: AP's rule was {row['shortfall']} weights short; as many were removed by global"
    assert expected in capsys.readouterr().out


def test_a_folder_without_a_run_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match="holds no run: activeprune run STUDY --out"):
        ap.results(tmp_path)


def test_the_threads_of_torch_do_not_matter(finished: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        go(tmp_path)
    finally:
        torch.set_num_threads(before)
    assert contents(tmp_path / ".store") == contents(finished / ".store")


def test_a_store_that_is_no_path_is_one_line(tmp_path: Path) -> None:
    started("smoke", tmp_path / "run").write_study()
    assert Run.opened(tmp_path / "run").study == read_study("smoke")
    told = json.loads((tmp_path / "run" / RUN_FILE).read_text())
    (tmp_path / "run" / RUN_FILE).write_text(json.dumps({**told, "store": 3}))
    with pytest.raises(ap.InputError, match=r"run\.json cannot be read: its store is no path"):
        Run.opened(tmp_path / "run")


def test_a_run_that_is_opened_keeps_its_own_imports_when_it_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that this process was asked for are others, and it looks for them in another folder."""
    (tmp_path / "own_methods_of_a_run.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    needs = Imports(imports=["own_methods_of_a_run"], import_from=str(tmp_path))
    out = tmp_path / "run"
    try:
        Run(read_study("smoke"), out, store_beside(out, None), needs).write_study()
        files = [out / RUN_FILE, *(tmp_path / ".store" / "runs").glob("*.json")]
        before = [file.read_bytes() for file in files]
        monkeypatch.chdir(tmp_path.parent)
        run = Run.opened(out)
        run.write_study()
        assert run.imports == ("own_methods_of_a_run",)
        assert [file.read_bytes() for file in files] == before
        assert all(json.loads(text).items() >= needs.items() for text in before)
        assert len(before) == 2
    finally:
        sys.modules.pop("own_methods_of_a_run", None)


@pytest.mark.parametrize("changed", [{"imports": 5}, {"imports": "os"}, {"imports": [3]}, {"import_from": 7}])
def test_imports_that_are_no_names_are_one_line(tmp_path: Path, changed: dict) -> None:
    started("smoke", tmp_path / "run").write_study()
    setup = json.loads((tmp_path / "run" / RUN_FILE).read_text())
    (tmp_path / "run" / RUN_FILE).write_text(json.dumps({**setup, **changed}))
    with pytest.raises(ap.InputError, match=r"run\.json cannot be read: its imports are no names"):
        Run.opened(tmp_path / "run")


def test_the_device_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    assert started("smoke", tmp_path, changes={"device": "cpu"}).device == CPU


def test_a_cpu_that_has_a_number_trains_in_one_thread_as_well(tmp_path: Path) -> None:
    """Its bits would depend on the machine's cores."""
    numbered = started("smoke", tmp_path, changes={"device": "cpu:0"}).device
    with one_thread(numbered):
        assert torch.get_num_threads() == 1
