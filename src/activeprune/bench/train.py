"""How fast networks are trained: many at once against a plain loop, in one run and with everything included."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..core.errors import InputError, first_line, in_a_line
from ..data import Dataset, Images, InMemory
from ..networks.cifar_resnet import Block, CifarResNet
from ..training import Case, Span, Training
from ..training.choosing import Engines
from ..training.engine import Eager, Engine, Tell
from ..training.fused.lanes import Fused
from ..training.loop import train_together
from ..training.unavailable import EngineUnavailable
from .measure import settle

CIFAR = 60_000  # images; a sixth of them test, and a tenth of the others are held out
FEWER = 6_000  # in the same proportions, for engines that would take minutes
TIMED = 2  # epochs, after one that loads and captures, and before one at whose end a checkpoint is made
LENGTH = 160  # epochs of a whole training, which is not waited for
COPIED = 1 << 30  # bytes, for the memory's speed


@dataclass(frozen=True)
class Row:
    """`images_per_second` in all, with data, augmentation, evaluation and records, and as multiples of a plain loop's;
    `evaluation` is its share of the time; `gibibytes` are a GPU's memory; `floor` is what the memory's speed allows at
    most, None where nobody has counted the bytes.
    """

    network: str
    engine: str
    precision: str
    replicas: int
    images_per_second: float
    evaluation: float
    gibibytes: float | None
    floor: float | None
    times_eager_fp32: float | None = None
    times_eager_bf16: float | None = None

    def against(self, fp32: Row, bf16: Row | None = None) -> Row:
        """Compared with plain loops."""
        return replace(
            self,
            times_eager_fp32=self.images_per_second / fp32.images_per_second,
            times_eager_bf16=None if bf16 is None else self.images_per_second / bf16.images_per_second,
        )


def run(network: str, replicas: Sequence[int], batch: int, device: torch.device, tell: Tell) -> Iterator[Row]:
    """One row for the plain loop in each precision, then one for each number of replicas in bf16.

    `tell` is told what takes long, and which engine could not be had.
    """
    images = FEWER
    _check(network, noise(images))
    exact, training = (bench_training(network, precision, batch, images) for precision in ("fp32", "bf16"))
    yield (fp32 := _timed(exact, noise(images), Eager(exact, device), 1))
    yield (bf16 := _timed(training, noise(images), Eager(training, device), 1).against(fp32))
    engines = Engines(device, tell=tell)
    if engines.kind(training, noise(images)) is Fused:
        images, training = CIFAR, bench_training(network, "bf16", batch, CIFAR)
    dataset = noise(images)
    for count in replicas:
        try:
            yield _packed(training, dataset, engines, count).against(fp32, bf16)
        except torch.cuda.OutOfMemoryError as error:
            tell(f"{network}: {count} at once do not fit into memory ({first_line(error)})")


def _packed(training: Training, dataset: Dataset, engines: Engines, count: int) -> Row:
    """On the first engine that turns out able to."""
    while True:
        engine = engines.engine(training, dataset, count)
        try:
            return _timed(training, dataset, engine, count)
        except EngineUnavailable as error:
            engines.refuse(training, type(engine), str(error))


def _check(network: str, dataset: Dataset) -> None:
    """Refuses a network that cannot take these images."""
    images = dataset.train
    assert isinstance(images, Images)
    model = bench_training(network, "fp32", 1).build(len(dataset.classes), dataset.channels).eval()
    try:
        with torch.no_grad():
            model(images.pixels[:1].float())
    except Exception as error:  # whatever a network thinks of them
        raise InputError(f"{network} cannot take images of {tuple(images.shape)}: {in_a_line(error)}") from error


def noise(count: int) -> Dataset:
    """Random images of 32 × 32 pixels in ten classes, a sixth of them to test on."""
    draw = torch.Generator().manual_seed(0)

    def images(count: int) -> Images:
        pixels = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=draw)
        return Images(pixels, torch.randint(0, 10, (count,), generator=draw))

    return Dataset("noise", tuple("abcdefghij"), images(count * 5 // 6), images(count // 6))


def bench_training(network: str, precision: str, batch: int, images: int = CIFAR) -> Training:
    """What the paper's trainings do, of which a few epochs are timed. It has as many steps as with all of CIFAR,
    because the engine is chosen by that, too.
    """
    return Training.read(
        {
            "network": network, "data": "cifar10", "augment": "crop_flip", "lr": 1e-3, "momentum": 0.9,
            "weight_decay": 1e-4, "epochs": LENGTH * CIFAR // images, "batch": batch, "precision": precision,
        }
    )  # fmt: skip


def _timed(training: Training, dataset: Dataset, engine: Engine, count: int) -> Row:
    device = engine.device
    where = str(device) if isinstance(engine, Eager) else "cpu"
    feeds = [training.feed(seed, where, dataset=dataset) for seed in range(count)]
    assert isinstance(feeds[0], InMemory)
    starts = [training.build(10, 3, seed).state_dict() for seed in range(count)]
    moments: list[float] = []
    evaluated: list[float] = []
    watched = _Watched(engine)

    def note(*_: object) -> None:
        settle(device)
        moments.append(time.perf_counter())
        evaluated.append(watched.seconds)

    cases = [
        Case(feed, start, after_epoch=note if not number else None)
        for number, (feed, start) in enumerate(zip(feeds, starts, strict=True))
    ]
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what the row before has left is not this one's
        torch.cuda.reset_peak_memory_stats(device)
    train_together(training, cases, watched, Span(0, TIMED + 2))
    seconds = moments[TIMED] - moments[0]
    speed = TIMED * feeds[0].steps * training.batch * count / seconds
    return Row(
        network=training.network.name,
        engine=type(engine).__name__.lower(),
        precision=training.precision,
        replicas=count,
        images_per_second=speed,
        evaluation=(evaluated[TIMED] - evaluated[0]) / seconds,
        gibibytes=torch.cuda.max_memory_reserved(device) / 2**30 if device.type == "cuda" else None,
        floor=_floor(training, device),
    )


class _Watched:
    """An engine, and the time that its evaluations take."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.device, self.seconds = engine, engine.device, 0.0
        self.lane, self.run = engine.lane, engine.run

    def score(self, lanes: Any) -> Any:
        since = time.perf_counter()
        scores = self._engine.score(lanes)
        self.seconds += time.perf_counter() - since
        return scores


def _floor(training: Training, device: torch.device) -> float | None:
    """Images a second if a CIFAR ResNet's activations moved at the memory's full speed and nothing else took time.

    The fewest passes over the activations of each convolution, in bf16: forward its input is read and its output
    written; backward the gradient, the output and the input are read, and the input's gradient is written. A block's
    sum is written once and read once in each direction more.
    """
    model = training.build(10, 3)
    if device.type != "cuda" or not isinstance(model, CifarResNet):
        return None
    moved = 6 * 2 * 16 * 32**2  # the first convolution, whose input is small
    side = 32
    for block in model.blocks:
        assert isinstance(block, Block)
        before = 2 * block.conv1.in_channels * side**2
        side //= block.conv1.stride[0]
        after = 2 * block.conv1.out_channels * side**2
        moved += (3 * before + 3 * after) + 6 * after + 4 * after
    source = torch.empty(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    settle(device)
    since = time.perf_counter()
    for _ in range(10):
        target.copy_(source)
    settle(device)
    return float(10 * 2 * COPIED / (time.perf_counter() - since) / moved)
