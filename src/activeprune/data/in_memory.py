"""Small images: all of them live on the device, and a batch is cut, mirrored and normalised there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import torch
from torch import Tensor

from ..core.errors import InputError
from .augment import Draws, augmented, draws
from .feeds import Batch, Feed, Part
from .images import Images
from .normalise import Normalisation, resized, scaled
from .splits import Split


class InMemory(Feed):
    """A feed of `Images`. `parts` holds train, validation and test on the device, as bytes.

    Batches are scaled to `resolution` after all else; None leaves them as they are.
    """

    def __init__(
        self,
        split: Split,
        seed: int,
        batch: int,
        augment: str,
        resolution: int | None,
        normalisation: Normalisation,
        device: torch.device | str,
    ) -> None:
        super().__init__(split, seed, batch, augment, normalisation, device)
        self.resolution = resolution
        self.parts: dict[Part, Images] = {}
        for part in get_args(Part):
            images = getattr(split, part)
            if not isinstance(images, Images):
                raise InputError(f"{part} must be Images as train is, not {type(images).__name__}")
            if images.shape[0] != self.channels:
                raise InputError(f"normalisation of {self.channels} channels: {part} images have {images.shape[0]}")
            self.parts[part] = images.to(self.device)

    def _epoch(self, epoch: int) -> Iterator[Batch]:
        train = self.parts["train"]
        drawn = draws(self.seed, epoch, len(train)).to(self.device)
        for start in range(0, self.steps * self.batch, self.batch):
            rows = slice(start, start + self.batch)
            chosen = drawn.order[rows]
            yield self._input(self._augmented(train.pixels[chosen], drawn, rows)), train.labels[chosen]

    def _plain(self, index: Tensor) -> Iterator[Batch]:
        train = self.parts["train"]
        for chosen in torch.split(index.to(self.device), self.batch):
            yield self._input(train.pixels[chosen]), train.labels[chosen]

    def _whole(self, part: Part, batch: int) -> Iterator[Batch]:
        images = self.parts[part]
        for pixels, labels in zip(torch.split(images.pixels, batch), torch.split(images.labels, batch), strict=True):
            yield self._input(pixels), labels

    def _augmented(self, pixels: Tensor, drawn: Draws, rows: slice) -> Tensor:
        if self.augment == "none":
            return pixels
        flip = drawn.flip[rows] if self.augment == "crop_flip" else torch.zeros_like(drawn.flip[rows])
        return augmented(pixels, drawn.shift[rows], flip)

    def _input(self, pixels: Tensor) -> Tensor:
        x = scaled(pixels, *self.factors)
        return x if self.resolution is None else resized(x, self.resolution)
