"""The command line: help with an example, one clear line on bad input, the right exit code."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from activeprune.bench import dnr as bench_dnr
from activeprune.bench import prune as bench_prune
from activeprune.cli import main
from activeprune.core.methods import METHODS

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "command", [[], ["list"], ["doctor"], ["dnr"], ["bench"], ["bench", "prune"], ["bench", "dnr"]]
)
def test_help_is_there_with_an_example(command: list[str], capsys: Captured) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: {' '.join(['activeprune', *command])}")
    assert "Example:" in shown


def test_no_command_shows_the_help(capsys: Captured) -> None:
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["lst"], "No such command 'lst'"),
        (["bench"], "Missing command"),
        (["bench", "prune", "--repeats", "0"], "--repeats"),
        (["bench", "prune", "--repeats", "many"], "--repeats"),
        (["bench", "prune", "--network", "vgg"], "unknown network to measure 'vgg': did you mean 'vgg19'?"),
        (["bench", "prune", "--device", "abacus"], "device 'abacus' cannot be used here"),
        (["bench", "prune", "--device", "meta"], "device 'meta' cannot be used here"),
        (["bench", "dnr", "--network", "vit"], "unknown network to measure 'vit'"),
        (["list", "metods"], "unknown topic 'metods': did you mean 'methods'?"),
        (["list", "--import", "no_such_module"], "--import no_such_module: ModuleNotFoundError: No module named"),
        (["list", "--import"], "--import"),
        (["list", "--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command: list[str], says: str, capsys: Captured) -> None:
    assert main(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("activeprune: ")
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_debug_shows_the_traceback(capsys: Captured) -> None:
    assert main(["list", "metods", "--debug"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.splitlines()[-1].startswith("activeprune: unknown topic")


def test_an_interrupt_is_exit_code_130(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_prune, "run", interrupted)
    assert main(["bench", "prune"]) == 130
    assert capsys.readouterr().err.strip() == "activeprune: interrupted"


def test_list_names_every_method_with_its_formula(capsys: Captured) -> None:
    assert main(["list", "methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["methods"]
    assert [row["name"] for row in rows] == list(METHODS)
    assert next(row for row in rows if row["name"] == "obd")["options"] == "probes=32"
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "E[g²]" in shown  # not swallowed as markup
    assert "ap_first_q" in shown
    assert "table6" in shown


def test_a_module_of_ones_own_brings_its_methods(tmp_path: Path) -> None:
    """In a process of its own, from the current folder, with the option at the end of the line."""
    (tmp_path / "my_methods.py").write_text(
        "import activeprune as ap\n\n"
        "@ap.method('mine')\ndef mine(weight, mask):\n    'My own.'\n    return weight.abs()\n"
    )
    command = [sys.executable, "-m", "activeprune", "list", "methods", "--json", "--import", "my_methods"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {
        "name": "mine",
        "score": "My own.",
        "scope": "global",
        "chain": "any",
        "batches": "",
        "options": "",
    } in json.loads(done.stdout)["methods"]


def test_a_module_that_breaks_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "my_broken_methods.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["list", "--import", "my_broken_methods"]) == 2
    assert capsys.readouterr().err.startswith("activeprune: --import my_broken_methods: SyntaxError: ")
    (tmp_path / "my_leaving_methods.py").write_text("import sys\nsys.exit(3)\n")
    assert main(["list", "--import", "my_leaving_methods"]) == 2
    assert capsys.readouterr().err == "activeprune: --import my_leaving_methods: SystemExit: 3\n"


def test_doctor_tells_versions_and_extras(capsys: Captured) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["tensorboard"] == "installed"
    assert main(["doctor"]) == 0
    assert "torch" in capsys.readouterr().out


def test_version_anywhere_on_the_line(capsys: Captured) -> None:
    assert main(["list", "--version"]) == 0
    assert capsys.readouterr().out.startswith("activeprune 0.")


def test_bench_prune_measures_every_step_and_undoes_torchs_changes(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small network, so that the numbers mean nothing but the path is the real one."""
    from torch import nn

    monkeypatch.setattr(bench_prune, "SIZES", {"small": lambda: [nn.Linear(30, 20), nn.Linear(20, 10)]})
    assert main(["bench", "prune", "--repeats", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["step"] for row in rows] == ["torch.nn.utils.prune", "global_magnitude", "lamp", "AP's rule"]
    assert all(row["weights"] == 800 and row["seconds"] > 0 for row in rows)
    assert rows[1]["times_faster_than_torch"] == pytest.approx(rows[0]["seconds"] / rows[1]["seconds"])
    assert main(["bench", "prune", "--repeats", "1"]) == 0
    assert "× faster: than torch.nn.utils.prune" in capsys.readouterr().out


def test_bench_dnr_compares_passes_over_the_same_images(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn

    def small() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))

    monkeypatch.setattr(bench_dnr, "SUBJECTS", {"small": bench_dnr.Subject(small, 8, (4, 4), (4, 4))})
    assert main(["bench", "dnr", "--repeats", "2", "--batches", "3", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["network"], row["images"], row["batch"]) == ("small", 12, 4)
    assert min(row["plain"], row["measuring"], row["ratio"], row["tracing"]) > 0
    assert main(["bench", "dnr", "--repeats", "1", "--batches", "1", "--batch", "2"]) == 0
    assert "× plain" in capsys.readouterr().out


def test_bench_dnr_times_looks_during_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_dnr, "SMALL", 300)
    rows = list(bench_dnr.looks("resnet8", [1, 2], torch.device("cpu")))
    assert [(row.engine, row.replicas, row.images) for row in rows] == [("eager", 1, 225), ("eager", 2, 225)]
    assert all(row.look > 0 and row.share == row.look / row.between for row in rows)


@pytest.mark.parametrize("command", [["run", "a" * 5000], ["run", "a" * 300 + ".yaml"], ["report", "a" * 300]])
def test_a_name_that_no_file_can_have_is_one_line(command: list[str], capsys: Captured) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "File name too long" in error
    assert error.count("\n") == 1


def test_an_error_only_shows_and_is_no_longer_than_a_person_reads(capsys: Captured) -> None:
    assert main(["run", "smoke", "--set", 'device="\\e[2J\\u202e"']) == 2
    assert main(["run", "smoke", "--set", f"lr={[0.5] * 10_000}"]) == 2
    error = capsys.readouterr().err
    assert "\\x1b[2J\\u202e" in error
    assert "\x1b" not in error
    assert "\u202e" not in error
    assert len(error) < 5000
