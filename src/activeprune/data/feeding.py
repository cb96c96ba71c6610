"""The right feed for a split."""

from __future__ import annotations

import torch

from ..core.errors import whole
from .feeds import Feed
from .images import Images
from .in_memory import InMemory
from .normalise import IMAGENET, Normalisation, statistics
from .splits import Split
from .streamed import Streamed

RESOLUTION = 224  # of image files; small images stay as they are


def feed(
    split: Split,
    seed: int,
    *,
    batch: int,
    augment: str = "none",
    resolution: int | None = None,
    normalisation: Normalisation | None = None,
    device: torch.device | str = "cpu",
    workers: int = 0,
) -> Feed:
    """Batches of a split: images in memory go to the device as a whole, files are decoded by `workers` processes.

    `augment` is one of `AUGMENTATIONS`, and for training images alone. Without a `normalisation`, images in memory
    are normalised by their training images' own statistics, files by ImageNet's.

    >>> from .sources import load
    >>> from .splits import split
    >>> digits = feed(split(load("digits"), seed=0), seed=0, batch=64, augment="crop")
    >>> x, y = next(digits.training(epoch=0))
    >>> x.shape, y.shape, digits.steps
    (torch.Size([64, 1, 8, 8]), torch.Size([64]), 20)
    """
    resolution = None if resolution is None else whole("resolution", resolution, 1)
    workers = whole("workers", workers, 0)
    device = torch.device(device)
    if isinstance(train := split.dataset.train, Images):
        own = normalisation or statistics(train.take(split.rows["train"]))
        return InMemory(split, seed, batch, augment, own, device, resolution)
    return Streamed(split, seed, batch, augment, normalisation or IMAGENET, device, resolution or RESOLUTION, workers)
