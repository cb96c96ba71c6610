"""Large images: worker processes decode the files of a batch, and the device normalises it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils import data

from ..core.errors import InputError
from ..core.randomness import generator
from .augment import Draws
from .decode import central, random_resized
from .feeds import Batch, Feed, Part
from .images import Files
from .normalise import IMAGENET, Normalisation, scaled

LARGEST_SEED = 2**63 - 1
RESOLUTION = 224  # of image files; small images stay as they are


class Order(NamedTuple):
    """One image for a worker to decode; with a seed, a random part of it."""

    path: Path
    seed: int | None = None
    flip: bool = False


@dataclass(eq=False, repr=False)
class Streamed(Feed):
    """A feed of `Files`. Each image has a seed of its own, so that it does not matter which worker decodes it."""

    workers: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.resolution = self.batching.resolution or RESOLUTION
        if self.channels != 3:
            raise InputError(f"normalisation of {self.channels} channels: image files have 3")

    @property
    def pixels(self) -> int:
        """Of an image as a network sees it."""
        return self.resolution**2

    def expect(self, epoch: int) -> None:
        """Nothing: what takes long are the files, and workers begin with these when they are asked for."""

    def _usual_normalisation(self) -> Normalisation:
        return IMAGENET

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        files = _files(self.split.train)
        draw = generator(self.seed, "data", epoch)
        drawn = Draws.of(draw, len(files))
        seeds = torch.randint(0, LARGEST_SEED, (len(files),), generator=draw)
        batches = torch.split(torch.arange(self.steps * self.batch), self.batch)
        random = self.augment == "resized_crop_flip"

        def orders(rows: Tensor) -> list[Order]:
            index = drawn.order[rows].tolist()
            if not random:
                return [Order(files.path(i)) for i in index]
            own = zip(index, seeds[rows].tolist(), drawn.flip[rows].tolist(), strict=True)
            return [Order(files.path(i), seed, flip) for i, seed, flip in own]

        labels = (files.labels[drawn.order[rows]] for rows in batches)
        yield from self._loaded((orders(rows) for rows in batches), labels)

    def _plain(self, index: Tensor, batch: int) -> Iterator[Batch]:
        return self._central(_files(self.split.train), index, batch)

    def _whole(self, part: Part, batch: int) -> Iterator[Batch]:
        files = _files(getattr(self.split, part))
        return self._central(files, torch.arange(len(files)), batch)

    def _central(self, files: Files, index: Tensor, batch: int) -> Iterator[Batch]:
        orders = ([Order(files.path(i)) for i in rows.tolist()] for rows in torch.split(index, batch))
        return self._loaded(orders, torch.split(files.labels[index], batch))

    def _loaded(self, orders: Iterable[list[Order]], labels: Iterable[Tensor]) -> Iterator[Batch]:
        """Batches from the workers, in the order in which they were asked for."""
        cuda = self.device.type == "cuda"
        loader = data.DataLoader(
            _Decoder(self.resolution),
            batch_size=None,  # an order is a whole batch
            sampler=orders,
            num_workers=self.workers,
            pin_memory=cuda,
            generator=torch.Generator(),  # workers get a seed from here, and not from the global random state
        )
        for pixels, targets in zip(loader, labels, strict=True):
            if isinstance(pixels, str):
                raise InputError(pixels)
            on_device = pixels.to(self.device, non_blocking=cuda)
            yield scaled(on_device, *self.factors), targets.to(self.device, non_blocking=cuda)


class _Decoder(data.Dataset[Tensor | str]):
    """Orders to pixels uint8 [n, 3, R, R]; what is wrong with a file comes back as text.

    An exception would arrive in the other process with the worker's whole traceback as its message.
    """

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution

    def __getitem__(self, orders: list[Order]) -> Tensor | str:
        pixels = torch.empty(len(orders), 3, self.resolution, self.resolution, dtype=torch.uint8)
        try:
            for slot, order in zip(pixels, orders, strict=True):
                slot.copy_(self._decoded(order))
        except InputError as error:
            return str(error)
        return pixels

    def _decoded(self, order: Order) -> Tensor:
        if order.seed is None:
            return central(order.path, self.resolution)
        draw = torch.Generator().manual_seed(order.seed)
        return random_resized(order.path, self.resolution, draw, order.flip)


def _files(images: object) -> Files:
    if not isinstance(images, Files):
        raise InputError(f"a streamed feed reads Files, not {type(images).__name__}")
    return images
