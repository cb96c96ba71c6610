"""How images become batches."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import whole
from .normalise import Normalisation


@dataclass(frozen=True)
class Batching:
    """How many images a batch has, and what each becomes: augmented, normalised and scaled to a resolution.

    `augment` is one of `AUGMENTATIONS`, and for training images alone. Without a `normalisation`, images in memory
    are normalised by their training images' own statistics, files by ImageNet's. Without a `resolution`, images in
    memory stay as they are, and files are scaled to ImageNet's usual one.
    """

    batch: int
    augment: str = "none"
    resolution: int | None = None
    normalisation: Normalisation | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", whole("batch", self.batch, 1))
        if self.resolution is not None:
            object.__setattr__(self, "resolution", whole("resolution", self.resolution, 1))
