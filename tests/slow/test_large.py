"""What takes long or only shows at size: sums over ten million weights, a real compiler."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import activeprune as ap
from activeprune.core.methods.magnitude import lamp
from tests.helpers import SmallNet, needs_a_compiler, pruned_are_zero, random_masks, train

pytestmark = pytest.mark.slow


def test_lamp_on_ten_million_weights_agrees_with_float64_and_never_exceeds_one() -> None:
    weight = torch.randn(10_000_000) * torch.rand(10_000_000) ** 4  # over many orders of magnitude
    mask = torch.rand(10_000_000) < 0.9
    scores = lamp(weight, mask)
    squares = weight.double() ** 2 * mask
    order = torch.sort(squares, stable=True).indices
    tails = squares[order].flip(0).cumsum(0).flip(0)
    expected = torch.empty_like(squares)
    expected[order] = squares[order] / tails
    assert scores.max() == 1
    smallest = torch.finfo(torch.float32).tiny
    torch.testing.assert_close(scores[mask].double(), expected[mask], rtol=1e-5, atol=smallest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_selection_at_size_agrees_with_a_sort(dtype: torch.dtype) -> None:
    scores = {"a": torch.randn(3_000_000).to(dtype), "b": torch.randn(1000, 2000).to(dtype)}
    masks = ap.Masks({name: torch.rand(score.shape) < 0.7 for name, score in scores.items()})
    count = masks.alive // 3
    after = ap.prune_lowest(masks, scores, count)
    flat = torch.cat([scores[n].flatten().double().masked_fill(~masks[n].flatten(), torch.inf) for n in masks])
    expected = torch.cat([masks[n].flatten() for n in masks])
    expected[torch.sort(flat, stable=True).indices[:count]] = False
    assert torch.equal(torch.cat([after[n].flatten() for n in after]), expected)


@needs_a_compiler
@pytest.mark.timeout(900)
def test_pruned_stays_pruned_under_a_real_torch_compile() -> None:
    model = SmallNet()
    masks = random_masks(model)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
    masks.hold(model, optimizer)
    train(compiled, optimizer, steps=4)
    assert pruned_are_zero(model, masks)
    fewer = ap.prune_cycle("lamp", model, masks, masks.alive // 2).masks
    fewer.hold(model, optimizer)
    train(compiled, optimizer, steps=4)
    assert pruned_are_zero(model, fewer)


def printed(*command: str, check: bool = True) -> str:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, *command], cwd=root, capture_output=True, text=True, check=check)
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_examples_of_dense_networks_are_compared(tmp_path: Path) -> None:
    """The same seeds agree, whether all at once or in two goes; what is wrong is one line."""
    dense = ["examples/dense.py", "resnet8-digits", "--epochs", "1"]
    whole = printed(*dense, "--seeds", "3")
    parts = printed(*dense, "--seeds", "2") + printed(*dense, "--first", "2", "--seeds", "1")
    for name, text in (("whole", whole), ("parts", parts), ("twice", 2 * whole), ("cut", whole.partition(",")[0])):
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").write_text('{"seed": 0, "early_stop": null, "last": null}')
    (tmp_path / "wild.yaml").write_text("extends: resnet8-digits\nlr: 1.0e+30\nwarmup: 0ep\n")
    assert [line for line in whole.splitlines() if line.startswith("{")] == [
        line for line in parts.splitlines() if line.startswith("{")
    ]
    agreed = printed("examples/agree.py", str(tmp_path / "whole"), str(tmp_path / "parts")).splitlines()
    assert [line.split(":")[0] for line in agreed] == ["early-stop", "last epoch"]
    assert all("Welch p = 1.00, Mann-Whitney p = 1.00, F-test p = 1.00" in line for line in agreed)
    assert all(line.count("(3 seeds)") == 2 and "; +0.00, 95 % between -" in line for line in agreed)
    assert "seed 0: 10 epochs, " in printed(*dense[:-1], "10", "--seeds", "1")
    for wrong, says in (
        (["examples/agree.py", str(tmp_path / "whole"), str(tmp_path / "none")], "none"),
        (["examples/agree.py", str(tmp_path / "whole"), "README.md"], "at least two seeds"),
        (["examples/agree.py", str(tmp_path / "twice"), str(tmp_path / "whole")], "a seed stands there twice"),
        (["examples/agree.py", str(tmp_path / "empty"), str(tmp_path / "whole")], "not those of dense.py"),
        (["examples/dense.py", str(tmp_path / "wild.yaml"), "--seeds", "1"], "no training came to its end"),
        (["examples/agree.py", str(tmp_path / "whole"), str(tmp_path / "cut")], "not those of dense.py"),
        (["examples/dense.py", "nope"], "unknown study 'nope'"),
        (["examples/dense.py", "smoke", "--seeds", "0"], "--seeds begins at 1"),
    ):
        assert says in printed(*wrong, check=False).splitlines()[-1]


@pytest.mark.timeout(300)
def test_the_example_of_the_demo_runs_and_counts_to_the_weight() -> None:
    command = [sys.executable, "examples/digits.py", "--seeds", "2", "--epochs", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert "10.7 %" in done.stdout
    assert done.stdout.count("±") == 1 + 2 * 11  # the title, and two columns of eleven cycles
