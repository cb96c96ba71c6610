"""How unevenly numbers are spread over a tensor: zeros, the Gini index and the Hoyer measure, all in [0, 1]."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core.errors import InputError


def sparsity(values: Tensor) -> float:
    """The share of zeros.

    >>> sparsity(torch.tensor([0.0, 1.0, 0.0, 2.0]))
    0.5
    """
    return 1 - int(_checked(values).count_nonzero()) / values.numel()


def gini(values: Tensor) -> float:
    """The Gini index of absolute values (Hurley & Rickard 2009): 0 if all are equal, 1 - 1/n if all but one are 0.

    Of nothing but zeros it is 0.

    >>> gini(torch.tensor([1.0, 1.0, 1.0, 1.0])), gini(torch.tensor([0.0, 0.0, 0.0, 5.0]))
    (0.0, 0.75)
    """
    ordered = _checked(values).abs().flatten().double().sort().values
    total = float(ordered.sum())
    if not total:
        return 0.0
    n = len(ordered)
    rank = torch.arange(1, n + 1, dtype=torch.float64, device=ordered.device)
    found = 1 - 2 * float((ordered * (n - rank + 0.5)).sum()) / (total * n)
    return max(found, 0.0)  # equal numbers may come out below by rounding


def hoyer(values: Tensor) -> float:
    """The Hoyer measure (√n - ‖x‖₁ / ‖x‖₂) / (√n - 1): 0 if all are equal in size, 1 if all but one are 0.

    Of nothing but zeros it is 0.

    >>> round(hoyer(torch.tensor([3.0, -3.0])), 9), hoyer(torch.tensor([0.0, 5.0]))
    (0.0, 1.0)
    """
    flat = _checked(values).flatten().double()
    n, largest = flat.numel(), float(flat.abs().max())
    if n < 2 or not largest:
        return 0.0
    flat = flat / largest  # squares of very small or very large numbers stay numbers
    ratio = float(flat.abs().sum() / flat.square().sum().sqrt())
    return min(max((math.sqrt(n) - ratio) / (math.sqrt(n) - 1), 0.0), 1.0)


def _checked(values: Tensor) -> Tensor:
    if not values.numel():
        raise InputError("there are no numbers to measure")
    if not bool(torch.isfinite(values).all()):
        raise InputError("a number to measure is not finite")
    return values
