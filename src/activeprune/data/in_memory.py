"""Small images: all of them live on the device, and a batch is cut, mirrored and normalised there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..core.errors import InputError
from .ahead import Ahead
from .augment import Draws, augmented
from .feeds import Batch, Feed, Part
from .images import Dataset, Images
from .normalise import Normalisation, resized, scaled, statistics


@dataclass(eq=False, repr=False)
class InMemory(Feed):
    """A feed of `Images`, which lie on the device as bytes; batches are scaled to a resolution after all else."""

    def __post_init__(self) -> None:
        images = self.split.dataset.train
        if not isinstance(images, Images):
            raise InputError(f"data set {self.split.dataset.name!r} is decoded while training: it cannot lie in memory")
        super().__post_init__()
        self.resolution = self.batching.resolution
        self._parts: dict[Part, Images] = {}
        self._ahead = Ahead(self.seed, self.size)
        if images.shape[0] != self.channels:
            raise InputError(f"normalisation of {self.channels} channels: the images have {images.shape[0]}")

    @property
    def pixels(self) -> int:
        """Of an image as a network sees it."""
        images = self.split.dataset.train
        assert isinstance(images, Images)
        return prod(images.shape[1:]) if self.resolution is None else self.resolution**2

    def expect(self, epoch: int) -> None:
        """Begins to draw for an epoch, in a thread."""
        self._ahead.expect(epoch)

    def draws(self, epoch: int) -> Draws:
        """Order, crops and flips of an epoch, on the CPU."""
        return self._ahead.take(epoch)

    def part(self, part: Part) -> Images:
        """The images of a part on the device, as bytes; brought there when they are first asked for."""
        if part not in self._parts:
            images = getattr(self.split, part)
            assert isinstance(images, Images)
            self._parts[part] = images.to(self.device)
        return self._parts[part]

    def _usual_normalisation(self) -> Normalisation:
        images = self.split.train
        assert isinstance(images, Images)
        return statistics(images)

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        train = self.part("train")
        drawn = self.draws(epoch).to(self.device)
        for start in range(0, self.steps * self.batch, self.batch):
            rows = slice(start, start + self.batch)
            chosen = drawn.order[rows]
            pixels = shown(train.pixels[chosen], self.augment, drawn.shift[rows], drawn.flip[rows])
            yield self._input(pixels), train.labels[chosen]

    def _plain(self, index: Tensor, batch: int) -> Iterator[Batch]:
        train = self.part("train")
        for chosen in torch.split(index.to(self.device), batch):
            yield self._input(train.pixels[chosen]), train.labels[chosen]

    def _whole(self, part: Part, batch: int) -> Iterator[Batch]:
        images = self.part(part)
        for pixels, labels in zip(torch.split(images.pixels, batch), torch.split(images.labels, batch), strict=True):
            yield self._input(pixels), labels

    def _input(self, pixels: Tensor) -> Tensor:
        x = scaled(pixels, *self.factors)
        return x if self.resolution is None else resized(x, self.resolution)


class Shelf:
    """All images of a data set on a device, training images first, then test images.

    Batches by row: networks of several seeds, whose splits differ, share it. Nothing here waits for the device.
    """

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        if not isinstance(dataset.train, Images) or not isinstance(dataset.test, Images):
            raise InputError(f"data set {dataset.name!r} is decoded while training: it cannot lie on a device")
        self.dataset = dataset
        self.pixels = torch.cat([dataset.train.pixels, dataset.test.pixels]).to(device)
        self.labels = torch.cat([dataset.train.labels, dataset.test.labels]).to(device)


def shown(pixels: Tensor, augment: str, shift: Tensor, flip: Tensor) -> Tensor:
    """Images as a training shows them: shifted, and mirrored, or as they are."""
    if augment == "none":
        return pixels
    return augmented(pixels, shift, flip if augment == "crop_flip" else torch.zeros_like(flip))
