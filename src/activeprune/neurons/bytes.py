"""Sums of bytes that are 0 or 1, eight bytes to an addition.

Torch sums bytes one by one, on a GPU even after it has copied each into four. Read as 64-bit words, up to 255 rows can
be added before a byte runs over into the next.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

LANES = 8  # bytes in a word
MOST = 255  # that a byte can hold
FEW = 16  # rows that are too few to be worth a sum of their own


def summed(ones: Tensor) -> Tensor:
    """The sum over the middle axis of [a, k, b], contiguous bytes of 0 and 1, as int32 [a, b].

    >>> summed(torch.ones(2, 1000, 16, dtype=torch.uint8)).unique()
    tensor([1000], dtype=torch.int32)
    """
    a, k, b = ones.shape
    if b == 1 and k > 1 and k % LANES == 0:
        return summed(ones.view(a, k // LANES, LANES)).sum(1, dtype=torch.int32)[:, None]
    if b % LANES:
        return ones.sum(1, dtype=torch.int32)
    words = ones.view(torch.int64)
    rows = next(rows for rows in range(min(k, MOST), 0, -1) if k % rows == 0)
    if ones.device.type != "cpu" and rows >= FEW:  # only on a GPU: three kernels, where all of `ones` is read once
        return words.view(a, k // rows, rows, -1).sum(2).view(torch.uint8).sum(1, dtype=torch.int32)
    total = torch.zeros(a, b, dtype=torch.int32, device=ones.device)
    for part in torch.split(words, MOST, 1):
        total += part.sum(1).view(torch.uint8)
    return total


def over_samples(ones: Tensor) -> Tensor:
    """The sum over the first axis."""
    return summed(ones.view(1, len(ones), -1)).view(ones.shape[1:])


def over_maps(ones: Tensor, axis: int) -> Tensor:
    """The sum over all axes but the first and `axis`, [samples, channels]."""
    samples, channels = len(ones), ones.shape[axis]
    before, after = prod(ones.shape[1:axis]), prod(ones.shape[axis + 1 :])
    if after == 1:
        return summed(ones.view(samples, before, channels))
    maps = summed(ones.view(-1, after, 1)).view(samples, before, channels)
    return maps.sum(1, dtype=torch.int32) if before > 1 else maps[:, 0]
