"""`activeprune run`, as a person types it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from activeprune.cli import main
from activeprune.experiment.runs import Run
from tests.cli.makers import SMALL, Captured, refused


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "table1"
    assert main(["run", "table1", "--out", str(out), "--set", "seeds=1", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trainings"] == {
        "total": 53, "missing": 53, "shared": 13, "plain": 20, "plain_rewind": 20, "ap_lite": 20, "ap_pro": 20,
    }  # fmt: skip
    assert (told["steps"]["train"], told["steps"]["init"], told["seconds"]) == (53, 13, None)
    reported = 1 + 4 * 7  # trainings, each measured twice and looked at 51 times
    assert told["steps"]["measure"] == 2 * reported
    disk = 53 * (4 * 272_474 + 100 * 250) + 33 * 272_474 / 8 + reported * (2 * 10_000 + 51 * 1_600)
    assert told["disk_bytes"] == pytest.approx(disk, rel=0.02)
    assert not out.exists()
    assert main(["run", "table1", "--out", str(out), "--dry-run"]) == 0
    assert "265 trainings: 65 shared by several variants, 0 in the store, 265 to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "tabel1"], "unknown study 'tabel1': did you mean 'table1'?"),
        (["run", "table1", "--set", "lrr=1"], "unknown key 'lrr': did you mean 'lr'?"),
        (["run", "table1", "--set", "lr"], "'lr' is no assignment"),
        (["run", "table1", "--grid", "lrr=1,2"], "unknown key 'lrr'"),
        (["run", "smoke", "--grid", "lr=0.1", "--grid", "lr=0.2"], "--grid lr stands there twice"),
        (["run", "smoke", "--measure"], "--measure belongs to --dry-run"),
        (["run", "smoke", "--grid", "lr"], "'lr' is no assignment"),
        (["run", "smoke", "--set", "device=abacus", "--out", "x"], "device 'abacus' cannot be used here"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in refused(arguments, capsys)


def test_a_failed_training_is_exit_code_1_and_named(tmp_path: Path, capsys: Captured) -> None:
    assert main(["run", "smoke", "--out", str(tmp_path / "run"), *SMALL, "--set", "lr=1e30"]) == 1
    shown = capsys.readouterr()
    assert "failed: plain cycle 0 seed 0: loss" in shown.err
    assert "failed" in shown.out
    assert "missing" in shown.out


def test_a_grid_writes_the_winner_by_validation(tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "search"
    small = ["--set", "variants=plain", "--set", "cycles=1", "--processes", "1", "--quiet"]
    assert main(["run", "smoke", "--out", str(out), *small, "--grid", "lr=0.001,0.05"]) == 0
    shown = capsys.readouterr().out
    assert "lr=0.001" in shown
    winner = out / "winner.yaml"
    told = winner.read_text().splitlines()[0]
    best = told.rpartition(": ")[2]
    assert f"best by validation accuracy: {best} " in shown
    means = {}
    for label in ("lr=0.001", "lr=0.05"):
        run = Run.opened(out / label)
        lines = [json.loads(line) for line in (out / label / "epochs.jsonl").read_text().splitlines()]
        reported = {cell.training.key for cell in run.plan.cells}
        found = [line["validation_accuracy"] for line in lines if line["key"] in reported]
        means[label] = sum(found) / len(found)
    assert best == max(means, key=means.get)
    assert main(["run", str(winner), "--out", str(out / best), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trainings"]["total"] == 2


@pytest.mark.slow
def test_an_interrupt_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    """In a session of its own, whose processes all get the signal, as those of a terminal do."""
    command = [sys.executable, "-m", "activeprune", "run", "smoke", "--out", str(tmp_path / "run"),
               "--set", "epochs=500", "--set", "seeds=2", "--processes", "2"]  # fmt: skip
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "PYTHONUNBUFFERED": "1"}

    def with_interrupts() -> None:  # a shell starts background jobs with interrupts ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=with_interrupts
    ) as process:
        assert process.stderr is not None
        while " epoch 3/500 " not in process.stderr.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "interrupted: the same command goes on" in rest
    assert "Traceback" not in rest


def test_a_variant_with_another_density_says_its_own(tmp_path: Path, capsys: Captured) -> None:
    small = ["--set", "variants=[plain,ap_lite_literal]", "--set", "cycles=1", "--processes", "1", "--quiet"]
    assert main(["run", "smoke", "--out", str(tmp_path / "run"), *small]) == 0
    shown = capsys.readouterr().out
    assert "λ 80.0 %" in shown
    assert "at λ 80.4 %" in shown


def test_a_store_that_is_a_file_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "file").write_text("")
    error = refused(["run", "smoke", "--out", str(tmp_path / "run"), "--store", str(tmp_path / "file"), *SMALL], capsys)
    assert str(tmp_path / "file") in error


def test_a_network_beside_the_study_is_found_here_by_helpers_and_later_from_elsewhere(tmp_path: Path) -> None:
    """By the installed command, which does not look into its folder by itself."""
    (tmp_path / "beside.py").write_text(
        "from torch import nn\n"
        "def build(num_classes, in_channels=1, width=4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, num_classes))\n"
    )
    (tmp_path / "own.yaml").write_text("extends: smoke\nnetwork: {name: 'beside:build', width: 5}\ndata: digits\n")
    command = str(Path(sys.executable).parent / "activeprune")
    small = ["--set", "variants=plain", "--set", "cycles=1", "--set", "seeds=2", "--processes", "2"]
    for arguments, folder in (
        (["run", "own.yaml", *small], tmp_path),
        (["report", str(tmp_path / "runs" / "own"), "--no-page"], tmp_path.parent),
    ):
        done = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "plain" in done.stdout
