"""What measuring dead neurons costs: a measuring pass against a plain forward pass over the same images."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from ..core.errors import unknown
from ..core.graph import trace
from ..core.masks import Masks
from ..networks import build
from ..neurons import dead_neurons
from .measure import settle


@dataclass(frozen=True)
class Subject:
    """A network, its images, and how many of them at a time on a CPU and on a GPU."""

    build: Callable[[], nn.Module]
    side: int
    batch: int
    gpu_batch: int


SUBJECTS = {
    "resnet20": Subject(lambda: build("resnet20"), 32, 128, 1024),
    "vit_b16": Subject(lambda: build("vit_b16", resolution=224), 224, 8, 64),
}


@dataclass(frozen=True)
class Row:
    """Medians of passes that took turns, in seconds; `ratio` is the median of the ratios of neighbouring passes.

    `tracing` is the time for the weight graph, which one architecture needs once: it is not in `measuring`.
    """

    network: str
    images: int
    batch: int
    plain: float
    measuring: float
    ratio: float
    tracing: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run(networks: list[str], device: torch.device, batches: int, batch: int | None, repeats: int) -> Iterator[Row]:
    """A row for each network."""
    for name in networks:
        if name not in SUBJECTS:
            raise unknown("network to measure", name, SUBJECTS)
    for name in networks:
        subject = SUBJECTS[name]
        size = batch or (subject.batch if device.type == "cpu" else subject.gpu_batch)
        yield _measured(name, subject, device, batches, size, repeats)


def _measured(name: str, subject: Subject, device: torch.device, batches: int, size: int, repeats: int) -> Row:
    torch.manual_seed(0)
    model = subject.build().eval().to(device)
    masks = Masks({n: torch.rand(mask.shape) < 0.5 for n, mask in Masks.dense(model).items()}).to(device)
    masks.apply_(model)
    images = [torch.randn(size, 3, subject.side, subject.side, device=device) for _ in range(batches)]
    began = time.perf_counter()
    graph = trace(model, images[0])
    tracing = time.perf_counter() - began

    @torch.inference_mode()
    def plain() -> None:
        for x in images:
            model(x)

    def measuring() -> None:
        dead_neurons(model, masks, images, graph)

    pairs = [(_seconds(plain, device), _seconds(measuring, device)) for _ in range(repeats + 1)][1:]
    return Row(
        network=name,
        images=batches * size,
        batch=size,
        plain=statistics.median(one for one, _ in pairs),
        measuring=statistics.median(other for _, other in pairs),
        ratio=statistics.median(other / one for one, other in pairs),
        tracing=tracing,
    )


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    settle(device)
    began = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - began
