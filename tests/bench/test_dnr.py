"""`activeprune bench dnr`."""

import pytest
import torch
from torch import nn

from activeprune.bench import dnr as bench_dnr
from activeprune.cli import main
from tests.cli.makers import Captured, told


def test_a_pass_that_measures_is_compared_with_a_plain_one_over_the_same_images(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))

    usual = bench_dnr.Pass(batches=4, batch=4)
    monkeypatch.setattr(bench_dnr, "SUBJECTS", {"small": bench_dnr.Subject(small, 8, cpu=usual, gpu=usual)})
    monkeypatch.setattr(bench_dnr, "SMALL", 300)
    (row,) = told(["bench", "dnr", "--network", "small", "--repeats", "2", "--batches", "3"], capsys)["rows"]
    assert (row["network"], row["images"], row["batch"]) == ("small", 12, 4)
    assert min(row["plain"], row["measuring"], row["ratio"], row["tracing"]) > 0
    assert main(["bench", "dnr", "--repeats", "1", "--batches", "1", "--batch", "2"]) == 0
    shown = capsys.readouterr().out
    assert "× plain" in shown
    assert "dead neurons during a training" in shown


def test_looks_during_a_training_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_dnr, "SMALL", 300)
    rows = list(bench_dnr.looks("resnet8", [1, 2], torch.device("cpu")))
    assert [(row.engine, row.replicas, row.images) for row in rows] == [("eager", 1, 225), ("eager", 2, 225)]
    assert all(row.look > 0 and row.share == row.look / row.between for row in rows)
