"""`activeprune dnr`, as a person types it."""

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import activeprune as ap
from activeprune.cli import main
from activeprune.training import Training
from tests.helpers import random_masks

Captured = pytest.CaptureFixture[str]
DIGITS = ["dnr", "resnet8", "--data", "digits"]


def training(**keys) -> Training:
    return Training.read({"network": "resnet8", "data": "digits", "lr": 1.0, "epochs": 1, "batch": 128, **keys})


@pytest.fixture
def model() -> torch.nn.Module:
    return training().build(10, 1, seed=5)


def told(arguments: list[str], capsys: Captured) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_it_measures_a_state_under_masks_as_the_library_does(
    suffix: str, model: torch.nn.Module, tmp_path: Path, capsys: Captured
) -> None:
    masks = random_masks(model, 0.05)
    masks.save(tmp_path / "masks.safetensors")
    state = tmp_path / f"state.{suffix}"
    save_file(model.state_dict(), state) if suffix == "safetensors" else torch.save(model.state_dict(), state)
    files = ["--state", str(state), "--masks", str(tmp_path / "masks.safetensors")]
    found = told([*DIGITS, *files, "--samples", "all", "--seed", "3", "--bound"], capsys)
    images = training().feed(3).evaluation("train", 128)
    expected = ap.dead_neurons(model, masks, images)
    assert expected.unit.dead_static > 0
    assert found["density"] == masks.density
    assert {key: found[key] for key in expected.as_dict()} == expected.as_dict()
    for name, layer in expected.unit.layers.items():
        assert found["bound"][name] == ap.neurons.layer_bound(layer)


def test_samples_are_training_images_drawn_by_the_seed(capsys: Captured) -> None:
    few = told([*DIGITS, "--samples", "200"], capsys)
    feed = training().feed(0)
    images = torch.cat([x for x, _ in feed.scoring(0, 2)])[:200]
    expected = ap.dead_neurons(training().build(10, 1, seed=0), None, [images])
    assert (few["samples"], few["unit"]) == (200, expected.as_dict()["unit"])
    assert told([*DIGITS, "--samples", "1290"], capsys)["samples"] == 1290  # more than whole batches hold
    assert told(DIGITS, capsys)["samples"] == feed.size < 2048


def test_the_table_has_a_row_a_layer_and_one_for_the_network(capsys: Captured) -> None:
    command = [*DIGITS, "--samples", "64", "--batch", "64", "--bound", "--companions", "--exclude", "*#2"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "resnet8 on 64 training images of digits: untrained weights of seed 0, density 100.00%"
    assert [line.split()[0] for line in lines[1:7]] == [
        "layer", "relu", "blocks.0:relu", "blocks.1:relu", "blocks.2:relu", "network",
    ]  # fmt: skip
    assert lines[6].split()[1] == "2,816"  # 16 + 16 channels of 8 × 8, 32 of 4 × 4, 64 of 2 × 2
    assert any(line.startswith("bound: ") for line in lines)
    assert any(line.startswith("all weights ") for line in lines)


def test_options_of_the_network_and_of_the_definition(capsys: Captured) -> None:
    padded = told([*DIGITS, "--samples", "64", "--set", "shortcut=pad"], capsys)
    assert padded["unit"]["neurons"] == 4608
    loose = told([*DIGITS, "--samples", "64", "--set", "shortcut=pad", "--share", "0.5"], capsys)
    assert loose["channel"]["dead"] > padded["channel"]["dead"]
    batch = told([*DIGITS, "--samples", "64", "--set", "shortcut=pad", "--batch-statistics"], capsys)
    assert batch["unit"]["dead"] != padded["unit"]["dead"]


def test_what_could_not_be_attributed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    (tmp_path / "branching.py").write_text(
        "from torch import nn\n\n\n"
        "class Branching(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        x = super().forward(x.flatten(1))\n"
        "        return x.relu() if x.sum() > -1e9 else x\n\n\n"
        "def build(num_classes, in_channels=1):\n"
        "    return Branching(64, num_classes)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["dnr", "branching:build", "--data", "digits", "--samples", "64"]) == 0
    captured = capsys.readouterr()
    assert "unattributed, counted as dynamic: relu (torch.export cannot trace Branching: " in captured.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dnr", "resnet8"], "--data"),
        (["dnr", "resnet9", "--data", "digits"], "unknown network 'resnet9': did you mean 'resnet8'?"),
        (["dnr", "resnet8", "--data", "digit"], "unknown data set 'digit': did you mean 'digits'?"),
        ([*DIGITS, "--set", "width=3"], "width"),
        ([*DIGITS, "--samples", "few"], "samples = 'few': a number of images of at least 1 is needed, or all"),
        ([*DIGITS, "--samples", "0"], "samples = '0'"),
        ([*DIGITS, "--batch", "5000"], "batch = 5000"),
        ([*DIGITS, "--device", "abacus"], "device 'abacus' cannot be used here"),
        ([*DIGITS, "--state", "none.pt"], "no such file: none.pt"),
        ([*DIGITS, "--masks", "none.safetensors"], "no such file: none.safetensors"),
        ([*DIGITS, "--include", "blok*", "--samples", "9", "--batch", "9"], "unknown activation in include 'blok*'"),
        ([*DIGITS, "--threshold", "-1"], "threshold = -1.0"),
        ([*DIGITS, "--bound", "--levels", "1", "--samples", "9", "--batch", "9"], "levels = 1.0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], says: str, capsys: Captured) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("activeprune: ")
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_a_state_that_does_not_fit_is_told(model: torch.nn.Module, tmp_path: Path, capsys: Captured) -> None:
    state = model.state_dict()
    files = {
        "cut.safetensors": lambda path: path.write_bytes(b"12345"),
        "cut.pt": lambda path: path.write_bytes(b"PK12345"),
        "object.pt": lambda path: torch.save({"model": model}, path),
        "list.pt": lambda path: torch.save([1, 2], path),
        "less.pt": lambda path: torch.save({k: v for k, v in state.items() if k != "fc.bias"}, path),
        "more.pt": lambda path: torch.save({**state, "extra": torch.ones(1)}, path),
        "other.pt": lambda path: torch.save({**state, "fc.bias": torch.ones(3)}, path),
    }
    unreadable = "holds no weights that can be read"
    says = [
        unreadable, unreadable, unreadable, "holds no state dict",
        "it has no 'fc.bias'", "which has 'extra'", "'fc.bias' is (3,) there, (10,) here",
    ]  # fmt: skip
    for (name, write), message in zip(files.items(), says, strict=True):
        write(tmp_path / name)
        assert main([*DIGITS, "--state", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}}, tmp_path / "wrapped.pt")
    assert main([*DIGITS, "--samples", "9", "--batch", "9", "--state", str(tmp_path / "wrapped.pt")]) == 0


class Trap:
    """What a pickle may hold: a call of the attacker's choice."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.file),)


def test_no_file_of_weights_runs_anything_unfolds_or_is_half_believed(
    model: torch.nn.Module, tmp_path: Path, capsys: Captured
) -> None:
    state, bias = model.state_dict(), model.state_dict()["fc.bias"]

    def compressed(path: Path) -> None:
        torch.save({**state, "fc.bias": torch.zeros(10_000_000)}, tmp_path / "plain.pt")
        with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
            for part in plain.infolist():
                bomb.writestr(part.filename, plain.read(part))

    def changed(value: object) -> Callable[[Path], object]:
        return lambda path: torch.save({**state, "fc.bias": value}, path)

    files: dict[str, tuple[Callable[[Path], object], str]] = {
        "trap.pt": (changed(Trap(tmp_path / "sprung")), "it asks for posix.mkdir, which no weights need"),
        "trap.pkl": (lambda path: path.write_bytes(pickle.dumps(Trap(tmp_path / "sprung"), 2)), "no weights need"),
        "opcodes.pkl": (lambda path: path.write_bytes(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R."), "no weights"),
        "bomb.pt": (compressed, "is compressed, and would unfold to 40"),
        "number.pt": (lambda path: torch.save({1: bias}, path), "holds no state dict"),
        "complex.pt": (changed(bias.to(torch.complex64)), "plain tensors of real numbers by name are needed"),
        "sparse.pt": (changed(bias.to_sparse()), "plain tensors of real numbers"),
        "meta.pt": (changed(bias.to("meta")), "plain tensors of real numbers"),
        "bool.pt": (changed(bias.bool()), "'fc.bias' holds torch.bool where torch.float32 belongs"),
        "nan.pt": (changed(bias * float("nan")), "'fc.bias' holds values that are no finite numbers"),
        "half.pt": (changed(torch.full((10,), float("inf"), dtype=torch.bfloat16)), "no finite numbers"),
    }
    for name, (write, message) in files.items():
        write(tmp_path / name)
        assert main([*DIGITS, "--state", str(tmp_path / name)]) == 2, name
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert "weights_only" not in error  # torch advises to run what is in the file
    assert not (tmp_path / "sprung").exists()
