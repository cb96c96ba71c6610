"""Sums of bytes that are 0 or 1, eight bytes to an addition.

On a CPU torch sums bytes one by one. Read as 64-bit words, up to 255 rows can be added before a byte runs over into the
next.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

LANES = 8  # bytes in a word
MOST = 255  # that a byte can hold


def summed(ones: Tensor) -> Tensor:
    """The sum over the middle axis of [a, k, b], contiguous bytes of 0 and 1, as int32 [a, b].

    >>> summed(torch.ones(2, 1000, 16, dtype=torch.uint8)).unique()
    tensor([1000], dtype=torch.int32)
    """
    a, k, b = ones.shape
    if ones.device.type != "cpu":
        return ones.sum(1, dtype=torch.int32)  # as fast as its memory, and one kernel
    if b == 1 and k > 1 and k % LANES == 0:
        return summed(ones.view(a, k // LANES, LANES)).sum(1, dtype=torch.int32)[:, None]
    if b % LANES:
        return ones.sum(1, dtype=torch.int32)
    words = ones.view(torch.int64)
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
