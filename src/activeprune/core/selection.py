"""Exactly the k lowest of many tensors; and a fast stable sort of one.

Floats are read as integers of the same order and every decision is made on those, so the same keys give the same
choice on every device. On a CPU a radix select finds the k-th smallest: a histogram of 16 bits at a time, in blocks,
much faster than a sort and with little extra memory. It is written in numpy, because torch would wake all its threads
for each of thousands of small operations, and wait for them. On a GPU a sort is fast and waiting for an answer is
slow, so one sort of everything does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import InputError

DIGIT = 16
BINS = 1 << DIGIT
BLOCK = 1 << 16  # four bytes each: a few temporaries of this size stay in a core's cache

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Format:
    """Keys of one precision, and the integers that stand for them."""

    float_type: torch.dtype
    int_type: torch.dtype
    bits: int
    infinite: int  # the first digit of +infinity, as a signed number

    @property
    def shifts(self) -> range:
        return range(self.bits - DIGIT, -1, -DIGIT)

    @property
    def largest(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def order(self, pattern: Any) -> Any:
        """Integers in the order of the floats with this bit pattern, of torch or numpy.

        Floats are sign and magnitude: the order of negative ones must be reversed.
        """
        sign = pattern >> (self.bits - 1)
        sign &= self.largest
        sign ^= pattern
        return sign


SINGLE = _Format(torch.float32, torch.int32, 32, 0x7F80)
DOUBLE = _Format(torch.float64, torch.int64, 64, 0x7FF0)


def lowest(keys: Mapping[str, Tensor], among: Mapping[str, Tensor], count: int, what: str) -> dict[str, Tensor]:
    """True at the `count` positions with the smallest keys, of those where `among` is True.

    Ties go to the earlier tensor (in the order of `among`), then to the lower flat index. All of `among` is
    chosen when it has fewer than `count` positions. Keys elsewhere are not looked at; a NaN or an infinity
    among the candidates is an error that names the layer and `what` the keys are.
    """
    here = {name: keys[name].detach().to(mask.device) for name, mask in among.items()}
    form = DOUBLE if any(_is_wide(key) for key in here.values()) else SINGLE
    flat = {name: key.reshape(-1).to(form.float_type) for name, key in here.items()}
    on_cpu = all(mask.device.type == "cpu" for mask in among.values())
    return (_by_histogram if on_cpu else _by_sort)(flat, among, count, what, form)


def _by_histogram(
    keys: Mapping[str, Tensor], among: Mapping[str, Tensor], count: int, what: str, form: _Format
) -> dict[str, Tensor]:
    layers = {name: (keys[name].numpy(), mask.reshape(-1).numpy()) for name, mask in among.items()}
    prefix: int | None = None  # the digits of the k-th smallest key that are known so far
    wanted = count
    for shift in form.shifts:
        histogram = np.zeros(BINS, np.int64)
        for name, layer in layers.items():
            counts = _histogram(*layer, form, shift, prefix)
            if prefix is None:
                low, high = BINS // 2 - form.infinite, BINS // 2 + form.infinite
                _refuse_non_finite(int(counts[:low].sum() + counts[high:].sum()), what, name)
            histogram += counts
        running = histogram.cumsum()
        if wanted > running[-1]:
            return {name: mask.clone() for name, mask in among.items()}
        digit = int(np.searchsorted(running, wanted))
        wanted -= int(running[digit - 1]) if digit else 0
        prefix = digit - BINS // 2 if prefix is None else (prefix << DIGIT) | digit
    assert prefix is not None  # every digit is known now: prefix is the k-th smallest key itself
    chosen = {}
    for name, layer in layers.items():
        positions, taken = _choose(*layer, form, prefix, wanted)
        chosen[name] = torch.from_numpy(positions).view(among[name].shape)
        wanted -= taken
    return chosen


def _by_sort(
    keys: Mapping[str, Tensor], among: Mapping[str, Tensor], count: int, what: str, form: _Format
) -> dict[str, Tensor]:
    device = next(iter(among.values())).device
    bad = torch.stack([(~keys[n].isfinite() & mask.reshape(-1)).sum().to(device) for n, mask in among.items()])
    for name, number in zip(among, bad.tolist(), strict=True):
        _refuse_non_finite(number, what, name)
    candidate = torch.cat([mask.reshape(-1).to(device) for mask in among.values()])
    together = torch.cat([keys[name].to(device) for name in among]) + 0.0  # -0.0 becomes 0.0
    ordered = form.order(together.view(form.int_type)).masked_fill_(~candidate, form.largest)  # behind every key
    count = min(count, int(candidate.sum()))
    threshold = torch.sort(ordered).values[count - 1] if count else ordered.new_tensor(-form.largest)
    chosen, equal = ordered < threshold, ordered == threshold
    chosen |= equal & (equal.cumsum(0) <= count - chosen.sum())
    parts = torch.split(chosen, [mask.numel() for mask in among.values()])
    return {n: part.view(mask.shape).to(mask.device) for (n, mask), part in zip(among.items(), parts, strict=True)}


def descending(keys: Tensor) -> tuple[Tensor, Tensor]:
    """(values, indices) of a flat tensor of keys >= 0, largest first; equal keys in the order of their index.

    Sorted as integers: torch has a radix sort for those, 14 times faster on a CPU than its stable sort of floats.
    """
    form = DOUBLE if _is_wide(keys) else SINGLE
    values, indices = torch.sort(keys.view(form.int_type) ^ form.largest, stable=True)
    return values.bitwise_xor_(form.largest).view(form.float_type), indices


def _is_wide(keys: Tensor) -> bool:
    return keys.dtype == torch.float64 or not keys.is_floating_point()


def _refuse_non_finite(bad: int, what: str, name: str) -> None:
    if bad:
        raise InputError(f"{what} of layer {name!r}: {bad} of them are NaN or infinite")


def _blocks(keys: Array, among: Array, form: _Format) -> Iterator[tuple[slice, Array, Array]]:
    """(where, ordered keys, candidates), block by block."""
    integer = np.int32 if form is SINGLE else np.int64
    for begin in range(0, keys.size, BLOCK):
        where = slice(begin, begin + BLOCK)
        yield where, form.order((keys[where] + keys.dtype.type(0)).view(integer)), among[where]  # -0.0 becomes 0.0


def _histogram(keys: Array, among: Array, form: _Format, shift: int, prefix: int | None) -> Array:
    """How many candidates with the given prefix have each value of the next digit."""
    total = np.zeros(BINS + 1, np.int64)
    for _, key, candidate in _blocks(keys, among, form):
        digit = key >> shift
        if prefix is None:
            digit += BINS // 2
        else:
            candidate = candidate & (digit >> DIGIT == prefix)
            digit &= BINS - 1
        digit[~candidate] = BINS
        total += np.bincount(digit, minlength=BINS + 1)
    return total[:BINS]


def _choose(keys: Array, among: Array, form: _Format, threshold: int, ties: int) -> tuple[Array, int]:
    """Every candidate below the threshold and the first `ties` of those that equal it; how many of these it had."""
    chosen, taken = np.empty(keys.size, np.bool_), 0
    for where, key, candidate in _blocks(keys, among, form):
        np.logical_and(key < threshold, candidate, out=chosen[where])
        if taken < ties:
            equal = np.flatnonzero((key == threshold) & candidate)[: ties - taken]
            chosen[where][equal] = True
            taken += equal.size
    return chosen, taken
