"""Methods that look at the weights alone."""

from __future__ import annotations

import torch
from torch import Tensor

from ..selection import descending
from . import method


@method("global_magnitude")
def global_magnitude(weight: Tensor) -> Tensor:
    """|w|, compared over the whole network."""
    return weight.abs()


@method("layer_magnitude", scope="layer")
def layer_magnitude(weight: Tensor) -> Tensor:
    """|w|, the same fraction in every layer."""
    return weight.abs()


@method("imp", chain="rewind")
def imp(weight: Tensor) -> Tensor:
    """|w| with weight rewinding: the lottery-ticket method (Frankle & Carbin 2019)."""
    return weight.abs()


@method("random")
def random(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform in [0, 1), seeded."""
    return torch.rand(weight.shape, generator=generator).to(weight.device)


@method("lamp")
def lamp(weight: Tensor, mask: Tensor) -> Tensor:
    """w² / Σ v² over the alive v of the layer that come at or after w in ascending order (Lee et al. 2021).

    Equal magnitudes come in flat-index order, so each has its own denominator. Sums run in float64: in float32 they
    would drift on layers of millions of weights. Computed as (|w| / √Σ v²)², so that the sums alone need float64.
    """
    sizes = weight.abs().masked_fill_(~mask, 0).reshape(-1).flip(0)  # so that of equal ones the later comes first
    values, order = descending(sizes)
    roots = values.to(torch.float64, copy=True).square_().cumsum_(0).sqrt_().to(values.dtype)
    roots += roots[:1] == 0  # only in a layer of nothing but zeros: 0 / 1 instead of 0 / 0
    shares = values.div_(roots).square_()
    return sizes.index_copy_(0, order, shares).flip(0).view(weight.shape)
