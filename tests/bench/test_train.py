"""`activeprune bench train`."""

import json

import pytest
import torch
from torch import nn

from activeprune.bench import train as bench_train
from activeprune.cli import main
from activeprune.training.choosing import Engines
from activeprune.training.engine import Eager
from activeprune.training.unavailable import EngineUnavailable
from tests.cli.makers import Captured, told


def test_networks_at_once_are_compared_with_plain_loops(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a few images, so that the numbers mean nothing but the path is the real one."""
    monkeypatch.setattr(bench_train, "FEWER", 60)
    small = ["--network", "resnet8", "--batch", "15", "--replicas", "2", "--device", "cpu"]
    rows = told(["bench", "train", *small], capsys)["rows"]
    assert [(row["engine"], row["precision"], row["replicas"]) for row in rows] == [
        ("eager", "fp32", 1), ("eager", "bf16", 1), ("eager", "bf16", 2),
    ]  # fmt: skip
    fp32, bf16, both = (row["images_per_second"] for row in rows)
    assert [row["times_eager_fp32"] for row in rows] == [None, bf16 / fp32, both / fp32]
    assert [row["times_eager_bf16"] for row in rows] == [None, None, both / bf16]
    assert {row["gibibytes"] for row in rows} == {None}
    assert all(0 < row["evaluation"] < 1 for row in rows)


def test_networks_that_do_not_fit_into_memory_are_left_out_and_the_others_timed(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured before is not lost, and what comes behind is measured."""
    timed = bench_train._timed

    def short(training, dataset, engine, count: int):
        if count == 2:
            raise torch.cuda.OutOfMemoryError("no room\nfor this")
        return timed(training, dataset, engine, count)

    monkeypatch.setattr(bench_train, "FEWER", 60)
    monkeypatch.setattr(bench_train, "_timed", short)
    small = ["--network", "resnet8", "--batch", "15", "--replicas", "2,1", "--device", "cpu", "--json"]
    assert main(["bench", "train", *small]) == 0
    found = capsys.readouterr()
    assert [row["replicas"] for row in json.loads(found.out)["rows"]] == [1, 1, 1]
    assert "resnet8: 2 at once do not fit into memory (no room)" in found.err


def test_an_engine_that_turns_out_unable_is_named_and_another_one_timed() -> None:
    said: list[str] = []
    training, device = bench_train.bench_training("resnet8", "fp32", 15), torch.device("cpu")

    class Unable(Eager):
        def run(self, lanes, steps: int) -> None:
            raise EngineUnavailable("not today")

    class Choosing(Engines):
        def engine(self, *_: object) -> Eager:
            return (Unable if Unable in self._fitting[training] else Eager)(training, device)

    engines = Choosing(device, 1, said.append)
    engines._fitting[training] = [Unable]
    row = bench_train._packed(training, bench_train.noise(60), engines, 1)
    assert row.engine == "eager"
    assert said == ["resnet8: not today; it is trained the slower way"]


def test_a_network_that_cannot_take_the_images_is_one_line(capsys: Captured) -> None:
    assert main(["bench", "train", "--network", "tests.bench.test_train:narrow_minded", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == (
        "activeprune: tests.bench.test_train:narrow_minded cannot take images of (3, 32, 32): ValueError: too small\n"
    )


def narrow_minded(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    class NarrowMinded(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("too small")

    return NarrowMinded(in_channels, num_classes)
