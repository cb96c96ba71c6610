"""What a training loop sees of the data: batches that depend on seed and epoch alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ..core.errors import InputError, unknown, whole
from ..core.randomness import generator
from .augment import check_augmentation
from .batching import Batching
from .normalise import Normalisation
from .splits import Split

Batch = tuple[Tensor, Tensor]
Part = Literal["train", "validation", "test"]


@dataclass(eq=False, repr=False)
class Feed(ABC):
    """Batches: float32 [batch, C, H, W], normalised, and int64 labels [batch], on the device.

    `steps` are the whole batches in an epoch: a last one that is not full is left out, so that shapes never change.
    """

    split: Split
    seed: int
    batching: Batching
    device: torch.device

    def __post_init__(self) -> None:
        self.batch, self.augment = self.batching.batch, self.batching.augment
        self.sizes: dict[Part, int] = {part: len(self.split.rows[part]) for part in get_args(Part)}
        self.size = self.sizes["train"]
        if self.batch > self.size:
            raise InputError(f"batch = {self.batch} of {self.size} training images: at most {self.size} are possible")
        check_augmentation(self.augment, self.split.dataset.train)
        self.classes: tuple[str, ...] = self.split.classes
        self.normalisation = self.batching.normalisation or self._usual_normalisation()
        self.channels = len(self.normalisation.mean)
        self.steps = self.size // self.batch
        self.factors = self.normalisation.factors(self.device)

    def training(self, epoch: int) -> Iterator[Batch]:
        """Augmented batches of an epoch: a function of the seed and the epoch alone."""
        return self._epoch(whole("epoch", epoch, 0))

    def scoring(self, cycle: int, count: int) -> Iterator[Batch]:
        """At most `count` batches of different training images, not augmented: a function of seed and cycle alone."""
        cycle, count = whole("cycle", cycle, 0), whole("count", count, 1)
        order = torch.randperm(self.size, generator=generator(self.seed, "score", cycle))
        return self._plain(order[: min(count, self.steps) * self.batch], self.batch)

    def unaugmented(self, count: int | None = None, batch: int | None = None) -> Iterator[Batch]:
        """`count` different training images as they are, chosen by the seed; all in order without it."""
        if count is None or whole("count", count, 1) >= self.size:
            return self.evaluation("train", batch)
        order = torch.randperm(self.size, generator=generator(self.seed, "score", 0))
        return self._plain(order[:count], self.batch if batch is None else whole("batch", batch, 1))

    def evaluation(self, part: Part, batch: int | None = None) -> Iterator[Batch]:
        """All images of a part, in order and never augmented; the last batch may be smaller."""
        if part not in get_args(Part):
            raise unknown("part", part, get_args(Part))
        return self._whole(part, self.batch if batch is None else whole("batch", batch, 1))

    @property
    @abstractmethod
    def pixels(self) -> int:
        """Of an image as a network sees it."""

    @abstractmethod
    def expect(self, epoch: int) -> None:
        """Says that `training(epoch)` will be asked for: what it draws may be drawn meanwhile."""

    @abstractmethod
    def _usual_normalisation(self) -> Normalisation:
        """Of such images, where none is given."""

    @abstractmethod
    def _epoch(self, epoch: int) -> Iterator[Batch]: ...

    @abstractmethod
    def _plain(self, index: Tensor, batch: int) -> Iterator[Batch]:
        """Training images at these positions, in batches and not augmented."""

    @abstractmethod
    def _whole(self, part: Part, batch: int) -> Iterator[Batch]: ...
