"""Arrays of neuron numbers, one number for every place of a tensor.

The numbers of a tensor [N, C, H, W] whose neurons are its channels form an array [1, C, 1, 1]: as many axes as the
tensor has, each of full length or, where the number does not depend on the position, of length 1. In this form
slicing, transposing and concatenating tensors are the same operations on the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
NOBODY = -1  # a constant: nothing that weights feed


def collapsed(ids: Ids) -> Ids:
    """The same numbers, with length 1 along every axis along which they do not change.

    >>> collapsed(np.array([[4, 5], [4, 5]]))
    array([[4, 5]])
    """
    for axis, length in enumerate(ids.shape):
        if length > 1:
            first = ids.take([0], axis)
            if (ids == first).all():
                ids = first
    return ids


def reshaped(ids: Ids, before: Sequence[int], after: Sequence[int]) -> Ids:
    """The numbers of a tensor of shape `before` once it is viewed with shape `after`.

    The two shapes are cut into the shortest runs of equal size; a run within which nothing changes stays short.

    >>> channels = np.arange(3).reshape(1, 3, 1, 1)
    >>> reshaped(channels, (2, 3, 2, 2), (2, 12))
    array([[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]])
    >>> reshaped(channels, (2, 3, 2, 2), (2, 3, 4)).shape
    (1, 3, 1)
    """
    if ids.size == 1:
        return ids.reshape([1] * len(after))
    full: list[int] = []
    short: list[int] = []
    for old, new in _runs(before, after):
        constant = all(ids.shape[axis] == 1 for axis in old)
        full += [1 if constant else before[axis] for axis in old]
        short += [1 if constant else after[axis] for axis in new]
    return collapsed(np.broadcast_to(ids, full).reshape(short))


def _runs(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    runs = []
    i = j = 0
    while i < len(before) or j < len(after):
        old: list[int] = []
        new: list[int] = []
        while (not old and not new) or prod(before[a] for a in old) != prod(after[a] for a in new):
            behind = prod(before[a] for a in old) <= prod(after[a] for a in new)
            if i < len(before) and (behind or j == len(after)):
                old.append(i)
                i += 1
            else:
                new.append(j)
                j += 1
        runs.append((old, new))
    return runs


def joined(parts: Sequence[Ids], shapes: Sequence[Sequence[int]], axis: int) -> Ids:
    """The numbers of a concatenation along `axis`.

    Where all that changes along the axis is that some parts are constants, as the class token before the patches of
    an image, the others' numbers stand for all.
    """
    known = [part for part in parts if (part != NOBODY).any()]
    if len(known) == 1 and known[0].shape[axis] == 1 and known[0].size > 1:
        return known[0]
    others = np.broadcast_shapes(*(_with_length(part.shape, axis, 1) for part in parts))
    lengths = [shape[axis] for shape in shapes]
    full = [np.broadcast_to(p, _with_length(others, axis, n)) for p, n in zip(parts, lengths, strict=True)]
    return collapsed(np.concatenate(full, axis))


def _with_length(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    return tuple(length if a == axis else size for a, size in enumerate(shape))


def combinations(*arrays: Ids) -> tuple[Ids, Ids]:
    """The different tuples of numbers that meet at some position, [count, arrays], and for every position its row.

    >>> combinations(np.array([[3, 4]]), np.array([[7], [8]]))[0].tolist()
    [[3, 7], [3, 8], [4, 7], [4, 8]]
    """
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    rows = np.stack([np.broadcast_to(array, shape).reshape(-1) for array in arrays], axis=1)
    found, row = np.unique(rows, axis=0, return_inverse=True)
    return found, row.reshape(shape)


def pairs_along(ids: Ids, axis: int, length: int) -> Ids:
    """The different (number, index along `axis`) of a tensor, [pairs, 2], without constants."""
    index = np.arange(length).reshape([length if a == axis % ids.ndim else 1 for a in range(ids.ndim)])
    found, _ = combinations(ids, index)
    named: Ids = found[found[:, 0] != NOBODY]
    return named
