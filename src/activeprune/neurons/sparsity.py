"""How unevenly numbers are spread over a tensor: zeros, the Gini index and the Hoyer measure, all in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

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
    return float(_gini(_checked(values).reshape(1, -1)))


def hoyer(values: Tensor) -> float:
    """The Hoyer measure (√n - ‖x‖₁ / ‖x‖₂) / (√n - 1): 0 if all are equal in size, 1 if all but one are 0.

    Of nothing but zeros it is 0.

    >>> round(hoyer(torch.tensor([3.0, -3.0])), 9), hoyer(torch.tensor([0.0, 5.0]))
    (0.0, 1.0)
    """
    return float(_hoyer(_checked(values).reshape(1, -1)))


@dataclass(frozen=True)
class Measures:
    """The three measures of the same numbers."""

    sparsity: float
    gini: float
    hoyer: float


def measures(values: Tensor) -> Measures:
    """All three measures of a tensor.

    >>> measures(torch.tensor([0.0, 5.0]))
    Measures(sparsity=0.5, gini=0.5, hoyer=1.0)
    """
    return Measures(sparsity(values), gini(values), hoyer(values))


def measures_of_rows(rows: Tensor) -> Tensor:
    """The three measures of each row of [rows, numbers], as float64 [rows, 3]; nothing is checked, nothing waits."""
    zeros = (rows == 0).sum(1).double() / rows.shape[1]
    return torch.stack([zeros, _gini(rows), _hoyer(rows)], dim=1)


@dataclass(frozen=True)
class Companions:
    """The measures that stand beside dead-neuron rates.

    `parameters` is the share of the prunable weights that are pruned. `weights` are the measures of all masked weights
    together, `layers` those of each. `activations` are by activation: measured for each sample, then averaged.
    """

    parameters: float
    weights: Measures
    layers: Mapping[str, Measures]
    activations: Mapping[str, Measures]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measures_of_weights(weights: Mapping[str, Tensor]) -> tuple[Measures, dict[str, Measures]]:
    """The measures of several tensors together, and of each.

    >>> measures_of_weights({"a": torch.tensor([3.0]), "b": torch.tensor([0.0])})[0]
    Measures(sparsity=0.5, gini=0.5, hoyer=1.0)
    """
    together = torch.cat([weight.flatten() for weight in weights.values()])
    return measures(together), {name: measures(weight) for name, weight in weights.items()}


def _gini(rows: Tensor) -> Tensor:
    ordered = rows.abs().double().sort(1).values
    total, n = ordered.sum(1), rows.shape[1]
    rank = torch.arange(1, n + 1, dtype=torch.float64, device=rows.device)
    found = 1 - 2 * (ordered * (n - rank + 0.5)).sum(1) / (total * n)
    return torch.where(total == 0, 0.0, found.clamp(min=0))  # equal numbers may come out below by rounding


def _hoyer(rows: Tensor) -> Tensor:
    n = rows.shape[1]
    sizes = rows.abs().double()
    largest = sizes.amax(1, keepdim=True)
    sizes = sizes / largest  # squares of very small or very large numbers stay numbers
    ratio = sizes.sum(1) / sizes.square().sum(1).sqrt()
    found = (math.sqrt(n) - ratio) / (math.sqrt(n) - 1) if n > 1 else torch.zeros_like(ratio)
    return torch.where(largest[:, 0] == 0, 0.0, found.clamp(0, 1))


def _checked(values: Tensor) -> Tensor:
    if not values.numel():
        raise InputError("there are no numbers to measure")
    if not bool(torch.isfinite(values).all()):
        raise InputError("a number to measure is not finite")
    return values
