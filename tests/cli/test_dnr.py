"""`activeprune dnr`, as a person types it."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import activeprune as ap
from activeprune.cli import main
from tests.cli.makers import DIGITS, Captured, refused, told, training
from tests.helpers import random_masks


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
    assert says in refused(arguments, capsys)
