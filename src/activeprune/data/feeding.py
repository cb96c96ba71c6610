"""The right feed for a split."""

from __future__ import annotations

import torch

from ..core.errors import whole
from .batching import Batching
from .feeds import Feed
from .images import Images
from .in_memory import InMemory
from .splits import Split
from .streamed import Streamed


def feed(split: Split, seed: int, batching: Batching, device: torch.device | str = "cpu", workers: int = 0) -> Feed:
    """Batches of a split: images in memory go to the device as a whole, files are decoded by `workers` processes.

    >>> from .sources import load
    >>> from .splits import split
    >>> digits = feed(split(load("digits"), seed=0), 0, Batching(64, augment="crop"))
    >>> x, y = next(digits.training(epoch=0))
    >>> x.shape, y.shape, digits.steps
    (torch.Size([64, 1, 8, 8]), torch.Size([64]), 20)
    """
    workers = whole("workers", workers, 0)
    device = torch.device(device)
    if isinstance(split.dataset.train, Images):
        return InMemory(split, seed, batching, device)
    return Streamed(split, seed, batching, device, workers)
