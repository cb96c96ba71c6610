"""What measuring dead neurons costs: against a plain forward pass over the same images, and during a training."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ..core.errors import unknown
from ..core.graph import trace
from ..core.masks import Masks
from ..data import Feed
from ..networks import build
from ..neurons import dead_neurons
from ..neurons.again import RepeatedCounter
from ..training import Case, Span
from ..training.choosing import Engines
from ..training.duration import Duration
from ..training.engine import Eager
from ..training.loop import train_together
from ..training.probe import EVERY, PROBED_IMAGES, Probe, Probed, at_once
from ..training.result import Snapshot
from .measure import once, settle
from .train import CIFAR, bench_training, noise

BATCH = 128
SMALL = 1_200  # images, where a CPU trains on them
EPOCHS = 3
TRAINED = 0.75  # of all images; a sixth is to test on, and a tenth of the others to validate


@dataclass(frozen=True)
class Pass:
    """Once over so many batches of so many images."""

    batches: int
    batch: int

    @property
    def images(self) -> int:
        """All of them."""
        return self.batches * self.batch


@dataclass(frozen=True)
class Subject:
    """A network, the side of its images, and a pass over them on a CPU and on a GPU."""

    build: Callable[[], nn.Module]
    side: int
    cpu: Pass
    gpu: Pass


SUBJECTS = {
    "resnet20": Subject(lambda: build("resnet20"), 32, Pass(4, 128), Pass(11, 4096)),  # CIFAR-10's training images
    "vit_b16": Subject(lambda: build("vit_b16", resolution=224), 224, Pass(4, 8), Pass(8, 128)),
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


def run(
    networks: list[str], device: torch.device, batches: int | None, batch: int | None, repeats: int
) -> Iterator[Row]:
    """A row for each network."""
    for name in networks:
        if name not in SUBJECTS:
            raise unknown("network to measure", name, SUBJECTS)
    for name in networks:
        usual = SUBJECTS[name].cpu if device.type == "cpu" else SUBJECTS[name].gpu
        yield _measured(name, Pass(batches or usual.batches, batch or usual.batch), device, repeats)


def _measured(name: str, over: Pass, device: torch.device, repeats: int) -> Row:
    subject = SUBJECTS[name]
    torch.manual_seed(0)
    model = subject.build().eval().to(device)
    masks = Masks({n: torch.rand(mask.shape) < 0.5 for n, mask in Masks.dense(model).items()}).to(device)
    masks.apply_(model)
    images = [torch.randn(over.batch, 3, subject.side, subject.side, device=device) for _ in range(over.batches)]
    began = time.perf_counter()
    graph = trace(model, images[0])
    tracing = time.perf_counter() - began

    @torch.inference_mode()
    def plain() -> None:
        for x in images:
            model(x)

    def measuring() -> None:
        dead_neurons(model, masks, images, graph)

    pairs = [(once(plain, device), once(measuring, device)) for _ in range(repeats + 1)][1:]
    return Row(
        network=name,
        images=over.images,
        batch=over.batch,
        plain=statistics.median(one for one, _ in pairs),
        measuring=statistics.median(other for _, other in pairs),
        ratio=statistics.median(other / one for one, other in pairs),
        tracing=tracing,
    )


@dataclass(frozen=True)
class ProbeRow:
    """What looking at dead neurons during a training costs, in seconds for one network.

    `look` is one look at `images`; `between` is the training with its evaluation from one look to the next, as long as
    the default of a study lets it, on data of CIFAR's size; `share` is what a look adds to that.
    """

    network: str
    engine: str
    replicas: int
    images: int
    look: float
    between: float
    share: float


def looks(network: str, replicas: Sequence[int], device: torch.device) -> Iterator[ProbeRow]:
    """A row for each number of networks that are trained at once."""
    training, every = bench_training(network, "bf16" if device.type == "cuda" else "fp32", BATCH), EVERY
    dataset = noise(CIFAR if device.type == "cuda" else SMALL)
    steps = every.steps(int(CIFAR * TRAINED) // BATCH)
    for count in replicas:
        engine = Engines(device, count).engine(training, dataset, count)
        looked_at = RepeatedCounter(training.build(10, 3).to(device))
        where = str(device) if isinstance(engine, Eager) else "cpu"
        feeds = [training.feed(seed, where, dataset=dataset) for seed in range(count)]
        probes = [_TimedProbe(looked_at, feed, device) for feed in feeds]
        cases = [
            Case(feed, training.build(10, 3, feed.seed).state_dict(), probe=probe)
            for feed, probe in zip(feeds, probes, strict=True)
        ]
        results = train_together(training, cases, engine, Span(0, EPOCHS))
        times = [seconds for probe in probes for seconds in probe.times]
        taken = sum(len(result.epochs) for result in results) * feeds[0].steps
        a_step = (sum(result.seconds for result in results) - sum(times)) / taken
        look = statistics.median(times[1:])  # the first one traces
        yield ProbeRow(
            network=network,
            engine=type(engine).__name__.lower(),
            replicas=count,
            images=probes[0].images,
            look=look,
            between=steps * a_step,
            share=look / (steps * a_step),
        )


class _TimedProbe(Probe):
    """A probe that looks after every epoch and knows how long it did."""

    def __init__(self, network: RepeatedCounter, feed: Feed, device: torch.device) -> None:
        images = [x.to(device) for x, _ in feed.unaugmented(PROBED_IMAGES, at_once(feed, device))]
        super().__init__(Duration(1), network, None, images)
        self.times: list[float] = []
        self._device = device

    def __call__(self, step: int, state: Snapshot) -> Probed:
        settle(self._device)
        since = time.perf_counter()
        seen = super().__call__(step, state)
        settle(self._device)
        self.times.append(time.perf_counter() - since)
        return seen
