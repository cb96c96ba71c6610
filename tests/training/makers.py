"""Small trainings: images made here, networks that are quick, and a plain loop to compare with."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import activeprune as ap
from activeprune.data import Dataset, Images
from activeprune.training import Case, Result, Span, Training, train


def shapes(path: None = None) -> Dataset:
    """Two classes of noisy 6 × 6 images with two channels: brighter on the left, brighter on the right."""
    draw = torch.Generator().manual_seed(4)

    def images(count: int) -> Images:
        labels = torch.arange(count) % 2
        pixels = torch.randint(0, 120, (count, 2, 6, 6), generator=draw)
        for label, columns in enumerate((slice(0, 3), slice(3, 6))):
            pixels[labels == label, :, :, columns] += 60
        return Images(pixels.to(torch.uint8), labels)

    return Dataset("shapes", ("left", "right"), images(80), images(30))


def small(num_classes: int = 2, in_channels: int = 2, dropout: float = 0.0) -> nn.Module:
    """Convolution, batch-norm, a linear layer, and dropout if asked for."""
    convolution = nn.Conv2d(in_channels, 6, 3, padding=1, bias=False)
    head = [nn.Flatten(), nn.Dropout(dropout), nn.Linear(6 * 36, num_classes)]
    return nn.Sequential(convolution, nn.BatchNorm2d(6), nn.ReLU(), *head)


def loading(num_classes: int = 2, in_channels: int = 2, weights: str | None = None) -> nn.Module:
    """As torchvision's builders do, which load weights by name."""
    assert weights is None
    return small(num_classes, in_channels)


def frozen(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return small(num_classes, in_channels).requires_grad_(False)


class Skipping(nn.Sequential):
    """Doubles its output now and then in training, as is drawn on the CPU."""

    def __init__(self, draw: Callable[[], float], *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)
        return output if not self.training or self.draw() < 0.5 else 2 * output


DRAWS = {
    "torch": lambda: float(torch.rand(())),
    "numpy": lambda: float(np.random.rand()),  # noqa: NPY002  as old code does
    "python": random.random,
}


def skipping(num_classes: int = 2, in_channels: int = 2, draws: str = "torch") -> nn.Module:
    return Skipping(DRAWS[draws], *small(num_classes, in_channels))


class Late(nn.Module):
    """Leaves a layer out of its first three steps."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.late = inner, nn.Conv2d(2, 2, 1)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return self.inner(x + self.late(x) if self.steps > 3 else x)


def late(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Late(small(num_classes, in_channels))


def one_output(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return small(1, in_channels)


def two_things(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Pair(small(num_classes, in_channels))


def blind(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Blind(small(num_classes, in_channels))


def unreadable(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Unreadable(*small(num_classes, in_channels))


class Unreadable(nn.Sequential):
    """Has something in it that a compiler cannot read."""

    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        output: Tensor = super().forward(x)
        return output


class Pair(nn.Module):
    """Returns its output twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), self.inner(x)


class Blind(Pair):
    """Trains, but sees nothing in eval mode."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if self.training else self.inner(x) * torch.nan


BASE: dict[str, Any] = {
    "network": "tests.training.makers:small",
    "data": "tests.training.makers:shapes",
    "lr": 0.05,
    "epochs": "3ep",
    "batch": 16,
}


def training(**keys: Any) -> Training:
    return Training.read({**BASE, **keys})


FULL = training(
    augment="crop_flip", momentum=0.9, nesterov=True, weight_decay=1e-3, warmup="2it", drops=["2ep"], clip=1.0,
    label_smoothing=0.1, network={"name": "tests.training.makers:small", "dropout": 0.3},
)  # fmt: skip


def start_of(chosen: Training, seed: int = 0) -> dict[str, Tensor]:
    return chosen.build(num_classes=2, channels=2, seed=seed).state_dict()


def half(chosen: Training) -> ap.Masks:
    model = chosen.build(num_classes=2, channels=2)
    draw = torch.Generator().manual_seed(1)
    return ap.Masks({n: torch.rand(m.shape, generator=draw) < 0.5 for n, m in ap.Masks.dense(model).items()})


def by_itself(
    chosen: Training, seed: int, start: dict[str, Tensor], masks: ap.Masks | None = None, **more: Any
) -> Result:
    """One training; `first`, `last` and `device` aside, `more` is of its case."""
    span = Span(more.pop("first", 0), more.pop("last", None))
    return train(chosen, Case(chosen.feed(seed, more.pop("device", "cpu")), start, masks, **more), span)


def plain_loop(
    chosen: Training, seed: int, start: dict[str, Tensor], masks: ap.Masks | None, optimizer: Any, rates: list[float]
) -> dict[str, Tensor]:
    """What `train` does, as one would write it by hand with the library's public parts."""
    model = chosen.build(num_classes=2, channels=2)
    model.load_state_dict(start)
    optimizer = optimizer(model.parameters())
    if masks is not None:
        masks.hold(model, optimizer)
    feed = chosen.feed(seed)
    model.train()
    for step, rate in enumerate(rates):
        epoch, index = divmod(step, feed.steps)
        x, y = list(feed.training(epoch))[index]
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        cross_entropy(model(x), y, label_smoothing=chosen.label_smoothing).backward()
        if chosen.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), chosen.clip)
        optimizer.step()
    return model.state_dict()


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def same_result(one: Result, two: Result) -> bool:
    """To the bit, but for times."""
    return same(one.state, two.state) and one.epochs == two.epochs and one.failure == two.failure
