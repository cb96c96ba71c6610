"""Exactly the k lowest of many tensors, without a sort; and a sort, where one is needed.

A radix select: floats are read as integers of the same order, and a histogram of 16 bits at a time finds
the k-th smallest value. Every decision is made on integers, so the same keys give the same choice on every
device. Work goes in blocks, so that memory beyond the result stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import InputError

DIGIT = 16
BINS = 1 << DIGIT
CPU_BLOCK = 1 << 18  # four bytes each: a few temporaries of this size stay in a core's cache
DEVICE_BLOCK = 1 << 25  # few launches on a GPU, 128 MiB a temporary


@dataclass(frozen=True)
class _Format:
    """How keys of one precision become integers of the same order."""

    float_type: torch.dtype
    int_type: torch.dtype
    bits: int
    infinite: int  # the first digit of +infinity, as a signed number

    @property
    def shifts(self) -> range:
        return range(self.bits - DIGIT, -1, -DIGIT)

    def order(self, keys: Tensor) -> Tensor:
        """Integers in the order of the keys; -0.0 and 0.0 are the same."""
        pattern = (keys.to(self.float_type) + 0.0).view(self.int_type)
        sign = pattern >> (self.bits - 1)  # floats are sign and magnitude: reverse the order of negative ones
        return sign.bitwise_and_(torch.iinfo(self.int_type).max).bitwise_xor_(pattern)


SINGLE = _Format(torch.float32, torch.int32, 32, 0x7F80)
DOUBLE = _Format(torch.float64, torch.int64, 64, 0x7FF0)


def lowest(keys: Mapping[str, Tensor], among: Mapping[str, Tensor], count: int, what: str) -> dict[str, Tensor]:
    """True at the `count` positions with the smallest keys, of those where `among` is True.

    Ties go to the earlier tensor (in the order of `among`), then to the lower flat index. All of `among` is
    chosen when it has fewer than `count` positions. Keys elsewhere are not looked at; a NaN or an infinity
    among the candidates is an error that names the layer and `what` the keys are.
    """
    form = DOUBLE if any(_is_wide(keys[name]) for name in among) else SINGLE
    prefix: int | None = None  # the digits of the k-th smallest key that are known so far
    wanted = count
    for shift in form.shifts:
        histogram = torch.zeros(BINS, dtype=torch.int64)
        for name in among:
            layer = _histogram(keys[name], among[name], form, shift, prefix)
            if prefix is None:
                _refuse_non_finite(layer, form, f"{what} of layer {name!r}")
            histogram += layer
        running = histogram.cumsum(0)
        if wanted > int(running[-1]):
            return {name: mask.clone() for name, mask in among.items()}
        digit = int(torch.searchsorted(running, wanted))
        wanted -= int(running[digit - 1]) if digit else 0
        prefix = digit - BINS // 2 if prefix is None else (prefix << DIGIT) | digit
    assert prefix is not None  # every digit is known now: prefix is the k-th smallest key itself
    chosen = {}
    for name in among:
        chosen[name], taken = _choose(keys[name], among[name], form, prefix, wanted)
        wanted -= taken
    return chosen


def descending(keys: Tensor) -> tuple[Tensor, Tensor]:
    """(values, indices) of a flat tensor of keys >= 0, largest first; equal keys in the order of their index.

    Sorted as integers: torch has a radix sort for those, 14 times faster on a CPU than its stable sort of floats.
    """
    form = DOUBLE if _is_wide(keys) else SINGLE
    complement = torch.iinfo(form.int_type).max
    values, indices = torch.sort(keys.view(form.int_type) ^ complement, stable=True)
    return values.bitwise_xor_(complement).view(form.float_type), indices


def _is_wide(keys: Tensor) -> bool:
    return keys.dtype == torch.float64 or not keys.is_floating_point()


def _blocks(keys: Tensor, among: Tensor, form: _Format) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(where, ordered keys, candidates) in flat-index order, whatever the memory layout."""
    keys, among = keys.reshape(-1).to(among.device), among.reshape(-1)
    size = CPU_BLOCK if keys.device.type == "cpu" else DEVICE_BLOCK
    for begin in range(0, keys.numel(), size):
        where = slice(begin, begin + size)
        yield where, form.order(keys[where]), among[where]


def _histogram(keys: Tensor, among: Tensor, form: _Format, shift: int, prefix: int | None) -> Tensor:
    """How many candidates with the given prefix have each value of the next digit."""
    total = torch.zeros(BINS + 1, dtype=torch.int64, device=among.device)
    for _, key, candidate in _blocks(keys, among, form):
        digit = key >> shift
        if prefix is None:
            digit += BINS // 2
        else:
            candidate = candidate & (digit >> DIGIT == prefix)
            digit &= BINS - 1
        total += torch.bincount(digit.masked_fill_(~candidate, BINS), minlength=BINS + 1)
    return total[:BINS].cpu()


def _refuse_non_finite(histogram: Tensor, form: _Format, whose: str) -> None:
    low, high = BINS // 2 - form.infinite, BINS // 2 + form.infinite
    if bad := int(histogram[:low].sum() + histogram[high:].sum()):
        raise InputError(f"{whose}: {bad} of them are NaN or infinite")


def _choose(keys: Tensor, among: Tensor, form: _Format, threshold: int, ties: int) -> tuple[Tensor, int]:
    """Every candidate below the threshold and the first `ties` of those that equal it; how many of these it had."""
    chosen = torch.empty(among.shape, dtype=torch.bool, device=among.device)
    flat, taken = chosen.view(-1), 0
    for where, key, candidate in _blocks(keys, among, form):
        torch.logical_and(key < threshold, candidate, out=flat[where])
        if taken < ties:
            equal = torch.nonzero((key == threshold).logical_and_(candidate)).view(-1)[: ties - taken]
            flat[where][equal] = True
            taken += len(equal)
    return chosen, taken
