"""Mistakes of somebody who uses the library for the first time: each is told in words that help."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.cli import TOPICS, app, main
from activeprune.core.methods import Chain
from activeprune.experiment.plan.reading import KEYS
from activeprune.experiment.plan.study import CHAINS, VARIANTS, Variant
from tests.cli.makers import Captured

SMALL = ["--set", "variants=plain", "--set", "cycles=1", "--processes", "1"]


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


# -- help


def commands() -> list[list[str]]:
    groups = [[], ["store"], ["bench"]]
    of_groups = [["store", name] for name in ("ls", "verify", "gc", "pack", "unpack")]
    return [*groups, *of_groups, *(["bench", name] for name in ("prune", "train", "dnr")),
            *([command.name or command.callback.__name__] for command in app.registered_commands)]  # fmt: skip


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_help_has_an_example_of_its_own_command(command: list[str], capsys: Captured) -> None:
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: {' '.join(['activeprune', *command])}")
    example = re.search(r"Example.*?:  activeprune (.*)", shown)
    assert example is not None
    assert shlex.split(example[1])[: len(command)] == command


@pytest.mark.parametrize("command", [[], ["run"]], ids=["activeprune", "run"])
def test_the_first_examples_run_as_they_are_printed(
    command: list[str], capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--help"]) == 0
    example = re.search(r"Example:  activeprune ([^&]*)", capsys.readouterr().out)
    assert example is not None
    assert main([*shlex.split(example[1]), "--dry-run"]) == 0
    assert "trainings" in capsys.readouterr().out


def test_variants_chains_and_keys_are_all_listed(capsys: Captured) -> None:
    assert set(VARIANTS) == set(get_args(Variant))
    assert set(CHAINS) == set(get_args(Chain))
    listed = {row["name"] for row in TOPICS["keys"]()}
    assert listed >= KEYS - {"extends", "training", "grid"}  # of a file: which keys it starts from
    assert {"data.path", "data.limit"} <= listed
    assert all(row["what it is"] for row in TOPICS["keys"]())
    for topic in ("variants", "chains", "keys"):
        assert main(["list", topic]) == 0
    shown = capsys.readouterr().out
    for known in ("ap_lite_literal", "at_init", "movement_from", "[plain, ap_lite, ap_pro]"):
        assert known in shown


# -- devices


@pytest.mark.parametrize("command", [["run", "smoke"], ["dnr", "resnet8", "--data", "digits"], ["bench", "prune"]])
def test_all_commands_take_a_device_by_the_same_option(
    command: list[str], capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--device", "gpu"]) == 2
    error = capsys.readouterr().err
    assert "device 'gpu' cannot be used here: auto or cpu" in error
    assert "fpga" not in error  # torch's own list


def test_dead_neurons_are_measured_on_the_device_auto_too(capsys: Captured) -> None:
    small = ["--samples", "64", "--batch", "64", "--json"]
    assert main(["dnr", "resnet8", "--data", "digits", "--device", "auto", *small]) == 0
    assert '"samples": 64' in capsys.readouterr().out


# -- folders


def test_a_folder_of_runs_names_the_runs_inside(tmp_path: Path, capsys: Captured) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    assert main(["report", str(tmp_path)]) == 2
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert f"{tmp_path} holds no run: {one!r}, {two!r} inside it do" in capsys.readouterr().err


def test_a_folder_that_has_a_store_inside_says_so(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / ".store" / "objects").mkdir(parents=True)
    assert main(["store", "ls", str(tmp_path)]) == 2
    assert f"{tmp_path} is no store: {tmp_path / '.store'} is one" in capsys.readouterr().err


def test_a_store_that_is_not_there_is_not_recommended(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["store", "ls", "runs/.store"]) == 2
    assert capsys.readouterr().err == (
        "activeprune: runs/.store is no store: activeprune run makes one beside its folder\n"
    )


def test_other_settings_in_the_folder_of_a_run_are_told(tmp_path: Path, capsys: Captured) -> None:
    run = ["run", "smoke", "--out", str(tmp_path / "run"), *SMALL]
    told = f"the last run in {tmp_path / 'run'} had other settings (seeds, lr); this one takes its place"
    assert main([*run]) == 0
    assert main([*run, "--set", "keep=records", "--set", f"data.path={tmp_path}"]) == 0  # the same results
    assert "other settings" not in capsys.readouterr().err
    assert main([*run, "--set", "lr=0.2", "--set", "seeds=[1]"]) == 0
    assert told in capsys.readouterr().err


# -- studies


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["path=DIR"], "unknown key 'path': did you mean 'data.path'?"),
        (["limit=100"], "unknown key 'limit': did you mean 'data.limit'?"),
        (["method=snip"], "chain = reinit: method snip needs chain = at_init"),
        (["method=snip", "chain=at_init"], "variants = plain is needed"),
        (["variants=AP"], "unknown value 'AP' (known: ap_lite,"),
    ],
)
def test_what_would_be_right_is_said(changes: list[str], says: str, capsys: Captured) -> None:
    settings = [part for change in changes for part in ("--set", change)]
    assert main(["run", "smoke", *settings]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_extends_itself_is_not_called_missing(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.yaml").write_text("extends: mine.yaml\n")
    assert main(["run", str(tmp_path / "mine.yaml")]) == 2
    assert capsys.readouterr().err == "activeprune: mine.yaml extends itself\n"


def test_a_data_folder_that_is_not_there_is_told_apart_from_one_without_the_data(
    tmp_path: Path, capsys: Captured
) -> None:
    measure = ["dnr", "resnet20", "--data", "cifar10", "--path"]
    assert main([*measure, str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder; without a path the data are downloaded" in capsys.readouterr().err
    assert main([*measure, str(tmp_path)]) == 2
    assert "it must hold the folder cifar-10-batches-py" in capsys.readouterr().err


def test_a_package_that_is_gone_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setitem(TOPICS, "methods", gone)
    assert main(["list", "methods"]) == 1
    assert capsys.readouterr().err == (
        "activeprune: matplotlib is not installed, and activeprune needs it: install activeprune again\n"
    )


# -- Python


def test_what_is_no_model_state_or_optimiser_is_told() -> None:
    model = small_model()
    masks, optimizer = ap.Masks.dense(model), torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.raises(ap.InputError, match=r"a model \(nn.Module\) is needed, not a OrderedDict"):
        ap.Masks.dense(model.state_dict())
    with pytest.raises(ap.InputError, match="is needed, not the class Linear"):
        ap.Masks.dense(nn.Linear)
    with pytest.raises(ap.InputError, match="is needed, not a SGD"):
        masks.hold(optimizer, model)
    with pytest.raises(ap.InputError, match=r"an optimiser is needed, not a StepLR: masks.hold\(model, optimizer\)"):
        masks.hold(model, schedule)
    with pytest.raises(ap.InputError, match=r"a state dict is needed, not a Sequential: a model's is model.state_dict"):
        ap.activate(masks, model, small_model(), 3)


def test_an_input_that_does_not_fit_the_model_is_one_error_without_logs() -> None:
    """In a process of its own: torch's logs go to the standard error that was there when torch was imported."""
    code = (
        "import torch, activeprune as ap\n"
        "try: ap.trace(torch.nn.Linear(8, 4), torch.zeros(1, 9))\n"
        "except ap.InputError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torch.export cannot trace Linear: ")
    assert done.stderr == ""
