"""The paper's Theorem 1: how much a layer's features can tell of the input when some of its neurons are dead."""

from __future__ import annotations

import math
from operator import index
from typing import SupportsIndex

from ..core.errors import InputError
from .rates import Rates

LEVELS = 2.0**24  # whole numbers that float32 tells apart


def information_bound(dim: int, static: float, dynamic: float, c: float) -> float:
    """An upper bound of I(X; T) in nats, T being the outputs of a layer of `dim` neurons.

    `static` is the share S of its neurons that are dead because all their weights are pruned, `dynamic` the mean share
    D of those that output 0 all the same, `c` the constant C > 0 of `capacity_constant`. The bound is
    C · dim · (1 - S - D · (1 - ln((1 - S) / D) / C)), with its limits C · dim · (1 - S) for D = 0 and 0 for S = 1. It
    falls in S always, and in D while C ≥ ln((1 - S) / D) - 1.

    >>> round(information_bound(100, static=0.0, dynamic=0.5, c=10.0), 2)
    534.66
    >>> information_bound(100, static=0.25, dynamic=0.0, c=10.0)
    750.0
    """
    if isinstance(dim, bool) or not isinstance(dim, SupportsIndex) or index(dim) < 1:
        raise InputError(f"dim = {dim!r}: a whole number of neurons is needed, at least 1")
    for name, rate in (("static", static), ("dynamic", dynamic)):
        if not 0 <= rate <= 1:
            raise InputError(f"{name} = {rate}: a share from 0 to 1 is needed")
    if static + dynamic > 1 + 1e-9:  # rounding of shares that were measured apart
        raise InputError(f"static = {static} and dynamic = {dynamic}: no more than all neurons can be dead")
    if not (c > 0 and math.isfinite(c)):
        raise InputError(f"c = {c}: a number above 0 is needed")
    alive = 1 - static
    entropy = dynamic * math.log(alive / dynamic) if dynamic > 0 and alive > 0 else 0.0
    return dim * max(c * max(alive - dynamic, 0.0) + max(entropy, 0.0), 0.0)


def capacity_constant(levels: float, p_s: float) -> float:
    """The largest that the theorem's constant C can be, ln((N - 1) / (1 - p_S)) in nats.

    `levels` N > 2 are the values that an activation can take (the threshold τ over the step α of the number format),
    `p_s` < 1 is the largest probability with which a neuron of the layer outputs 0.

    >>> round(capacity_constant(2**24, p_s=0.9), 3)
    18.938
    """
    if not (levels > 2 and math.isfinite(levels)):
        raise InputError(f"levels = {levels}: more than 2 values of an activation are needed")
    if not 0 <= p_s < 1:
        raise InputError(f"p_s = {p_s}: a probability from 0 to below 1 is needed")
    return math.log((levels - 1) / (1 - p_s))


def layer_bound(layer: Rates, levels: float = LEVELS) -> float | None:
    """The bound of a layer from its measured rates, in nats; None where its neurons could not be followed.

    p_S is the share of samples for which the most often dead neuron with live weights was dead. A neuron that was dead
    for all n samples counts n / (n + 1): so many samples cannot tell more.
    """
    if layer.peak is None:
        return None
    samples = layer.counted // layer.neurons
    p_s = min(layer.peak, samples / (samples + 1))
    return information_bound(layer.neurons, layer.static, layer.dynamic, capacity_constant(levels, p_s))
