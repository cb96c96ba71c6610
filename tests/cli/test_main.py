"""The command line as a whole: one clear line on bad input, the right exit code, and what there is to be listed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from activeprune.bench import prune as bench_prune
from activeprune.cli import main
from activeprune.core.methods import METHODS
from tests.cli.makers import Captured, refused


def test_no_command_shows_the_help(capsys: Captured) -> None:
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["lst"], "No such command 'lst'"),
        (["list", "metods"], "unknown topic 'metods': did you mean 'methods'?"),
        (["list", "--import", "no_such_module"], "--import no_such_module: ModuleNotFoundError: No module named"),
        (["list", "--import"], "--import"),
        (["list", "--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(command: list[str], says: str, capsys: Captured) -> None:
    assert says in refused(command, capsys)


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
    assert "--import my_broken_methods: SyntaxError: " in refused(["list", "--import", "my_broken_methods"], capsys)
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


@pytest.mark.parametrize("command", [["run", "a" * 5000], ["run", "a" * 300 + ".yaml"], ["report", "a" * 300]])
def test_a_name_that_no_file_can_have_is_one_line(command: list[str], capsys: Captured) -> None:
    assert "File name too long" in refused(command, capsys)


def test_an_error_only_shows_and_is_no_longer_than_a_person_reads(capsys: Captured) -> None:
    assert main(["run", "smoke", "--set", 'device="\\e[2J\\u202e"']) == 2
    assert main(["run", "smoke", "--set", f"lr={[0.5] * 10_000}"]) == 2
    error = capsys.readouterr().err
    assert "\\x1b[2J\\u202e" in error
    assert "\x1b" not in error
    assert "\u202e" not in error
    assert len(error) < 5000
