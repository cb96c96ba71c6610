"""Mistakes of somebody who uses the library for the first time: each is told in words that help."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.cli import TOPICS, app, main
from activeprune.core.methods import Chain
from activeprune.experiment.plan.reading import KEYS
from activeprune.experiment.plan.study import CHAINS, VARIANTS, Variant
from activeprune.experiment.store import FolderStore
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


def test_a_dry_run_tells_of_a_data_folder_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    """It goes on: a run may be planned on one machine and computed on another."""
    dry = ["run", "table1", "--dry-run", "--out", str(tmp_path / "run"), "--set"]
    assert main([*dry, f"data.path={tmp_path / 'nowhere'}"]) == 0
    shown = capsys.readouterr()
    assert f"data.path = {tmp_path / 'nowhere'}: there is no such folder here" in shown.err
    assert "265 trainings" in shown.out
    assert main([*dry, f"data.path={tmp_path}"]) == 0
    assert capsys.readouterr().err == ""


def test_a_dry_run_of_what_the_store_has_needs_no_data(tmp_path: Path, capsys: Captured) -> None:
    run = ["run", "smoke", "--quiet", "--out", str(tmp_path / "run"), *SMALL]
    assert main(run) == 0
    assert main([*run, "--dry-run", "--set", f"data.path={tmp_path / 'nowhere'}"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run smoke --set cycles=1 --set cycles=2", "cycles is given twice: one value is needed"),
        ("run smoke --set device=cuda --device cpu", "device is given twice: one value is needed"),
        ("run smoke --seeds 2", "(--set seeds=VALUE changes a study's seeds)"),
        ("run smoke --report-cycles 2", "(--set report_cycles=VALUE changes a study's report_cycles)"),
        ("run smoke --colour", "No such option: --colour"),
        ("run smoke --set variants=plain,ap_lite", "'plain,ap_lite': several are a list, such as [plain, "),
        ("run smoke --set method=LAMP", "unknown method 'LAMP': did you mean 'lamp'?"),
        ("run smoke --set network.options=5", "options = 5: names and values are needed, such as {size: 32}"),
        ("run study.json", "study.json is no study: a file of one has a name that ends in .yaml"),
        ("run tabs.yaml", "tabs.yaml is no YAML: while scanning for the next token found character '\\t'"),
        ("--import study.py run smoke", "--import study.py: a module is needed, not a file: study"),
        ("run smoke --processes 0", "--processes"),
        ("run smoke --out study.json/run", "folder study.json/run: a file is where a folder is needed"),
        ("report made", "made holds no run: runs/made does"),
        ("report runs/made/study.yaml", "runs/made/study.yaml is one file of a run: activeprune report runs/made"),
        ("report runs/.store", "runs/.store holds no run: it is a store, and the folders of its runs are beside it"),
        ("report empty", "empty holds no run: activeprune run STUDY --out empty starts one"),
        ("store ls runs", "runs is no store: runs/.store is one\n"),
    ],
)
def test_a_slip_on_the_command_line_is_one_line(
    line: str, says: str, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "runs/made", "runs/.store/objects"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("study.json", "runs/made/run.json", "runs/made/study.yaml"):
        (tmp_path / file).write_text("{}")
    (tmp_path / "tabs.yaml").write_text("extends: smoke\n\tcycles: 1\n")
    assert main(shlex.split(line)) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("activeprune: ")
    assert error.count("\n") == 1


def test_a_study_from_windows_reads_as_any_other(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"\xef\xbb\xbfextends: smoke\r\ncycles: 1\r\nvariants: plain\r\n")
    assert main(["run", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "2 trainings" in capsys.readouterr().out


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


MODEL = small_model()
MASKS, SCORES = ap.Masks.dense(MODEL), {name: weight.detach() for name, weight in MODEL.named_parameters()}
MOVED = {name: tensor + 0.1 for name, tensor in MODEL.state_dict().items()}
ARRAYS = {name: tensor.numpy() for name, tensor in MOVED.items()}
BATCHES = [(torch.randn(4, 8), torch.zeros(4, dtype=torch.long))]
NO_MASKS = r"masks \(ap.Masks\) are needed, not a "


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ap.prune_cycle(MASKS, MODEL, "lamp", 3), "method: a name is needed, not a Masks"),
        (lambda: ap.prune_cycle("lamp", MASKS, MODEL, 3), f"{NO_MASKS}Sequential"),
        (lambda: ap.prune_cycle("lamp", MODEL, 3, MASKS), f"{NO_MASKS}int"),
        (lambda: ap.prune_cycle("lamp", MODEL, dict(MASKS), 3), f"{NO_MASKS}dict"),
        (lambda: ap.prune_solo(MASKS, MODEL, 3, MOVED), f"{NO_MASKS}Sequential"),
        (lambda: ap.prune_lowest(SCORES, MASKS, 3), f"{NO_MASKS}dict"),
        (lambda: ap.score("lamp", MODEL, None), f"{NO_MASKS}NoneType"),
        (lambda: ap.activate(MODEL, MASKS, MOVED, 3), f"{NO_MASKS}Sequential"),
        (lambda: ap.dead_neurons(BATCHES, MODEL, MASKS), f"{NO_MASKS}Sequential"),
        (lambda: ap.dead_neurons(MODEL, BATCHES, MASKS), f"{NO_MASKS}list"),
        (lambda: ap.dead_neurons(MODEL, MASKS, None, BATCHES), "graph must come from ap.trace.*, not be a list"),
        (lambda: ap.prune_cycle(abs, MODEL, MASKS, 3), "method: a name is needed, not a builtin_function"),
        (lambda: ap.prune_cycle("lamp", MODEL, MASKS, (35, 3)), r"not \(35, 3\); n_x, n_ap = ap.Budget\(p, q\).split"),
        (lambda: ap.prune_cycle("lamp", MODEL, MASKS, 3, 3, MOVED, rule=["ap"]), "rule: a name is needed, not a list"),
        (lambda: ap.prune_cycle("lamp", MODEL, MASKS, 3, 3, ARRAYS), "start state: '0.weight' is a ndarray, a tensor"),
        (lambda: ap.activate(MASKS, ARRAYS, MOVED, 3), "trained state: '0.weight' is a ndarray, a tensor is needed"),
        (lambda: ap.prune_lowest(MASKS, torch.ones(3), 3), "scores by name are needed, .* not a Tensor"),
        (lambda: ap.score("global_gradient", MODEL, MASKS, BATCHES, nn.CrossEntropyLoss), "not the class CrossEntropy"),
        (lambda: ap.score("global_gradient", MODEL, MASKS, BATCHES, "mse"), "loss_fn must be a function of .* a str"),
        (lambda: ap.Masks(MODEL), r"not a Sequential: ap.Masks.dense\(model\) makes them"),
        (lambda: ap.Masks(ARRAYS), "mask of '0.weight' must be a bool tensor, got a ndarray"),
        (lambda: ap.Masks.dense(MODEL, include=0), r"patterns for names are needed, such as 'layer1.\*', not 0"),
        (lambda: ap.Masks.dense(MODEL, exclude=[MODEL[0]]), r"patterns for names are needed.*, not \[Linear"),
        (lambda: ap.build(None), "network: a name is needed, not a NoneType"),
        (lambda: ap.build("resnet8", "10"), "num_classes = '10': a whole number is needed"),
        (lambda: ap.run("smoke", set=["cycles=2"]), r"set = \['cycles=2'\]: .* such as set={'cycles': 2}"),
        (lambda: ap.run("smoke", set={2: "cycles"}), r"set = {2: 'cycles'}: keys and values are needed"),
        (lambda: ap.run("smoke", grid="q=0.1,0.2"), r"grid = 'q=0.1,0.2': .* such as grid={'q': \[0.01, 0.02\]}"),
        (lambda: ap.run("smoke", {"cycles": 2}), r"out: the name of a folder is needed, not a dict; .* set={...}"),
        (lambda: ap.run({"extends": "smoke"}), "study: its name or a YAML file is needed, not a dict"),
        (lambda: ap.run("smoke", processes=0), "processes = 0: at least 1 is needed"),
        (lambda: ap.run("smoke", pack=0), "pack = 0: at least 1 is needed"),
    ],
)  # fmt: skip
def test_swapped_arguments_and_wrong_types_are_told_before_anything_is_done(
    call: Callable[[], object], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ap.InputError, match=says):
        call()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_numbers_of_numpy_are_numbers_and_a_run_is_no_folder(tmp_path: Path) -> None:
    run = ap.run("smoke", tmp_path / "run", set={"cycles": np.int64(1), "p": np.float64(0.2), "variants": "plain"})
    assert len(run.rows()) == 2
    with pytest.raises(ap.InputError, match=r"a folder is needed, not a Run, which has its rows already: rows\(\)"):
        ap.results(run)


def test_a_thousand_processes_are_no_more_than_there_are_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helpers: list[int] = []

    def recorded(own: object, command: list[str], count: int) -> object:
        helpers.append(count)
        return own

    monkeypatch.setattr("activeprune.experiment.jobs.Processes", recorded)
    for _ in range(2):  # the second finds nothing to do, and starts none
        run = ap.run("smoke", tmp_path / "run", set={"cycles": 1, "variants": "plain"}, processes=1000)
    assert helpers == [len(run.plan.todo(FolderStore(tmp_path / "empty")).missing) - 1]


@pytest.mark.slow
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
