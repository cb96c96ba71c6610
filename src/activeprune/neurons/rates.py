"""Dead-neuron rates: what was counted, as whole numbers, and the shares that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .sparsity import Companions

BINS = 10  # of the histogram, besides one for neurons that were never dead and one for those that always were


@dataclass(frozen=True)
class Rates:
    """Dead neurons of a layer, or of a network.

    `counted` pairs (neuron, sample) were looked at; in `dead` of them the neuron was dead for the sample, and in
    `dead_static` of these all the weights that feed it are pruned. `never_active` neurons were dead for every
    sample though a live weight feeds them. `histogram` counts neurons by the share of samples for which they were dead:
    exactly 0, ten equal parts between, exactly 1. `peak` is the largest such share of a neuron that a live weight
    feeds, None where no neuron could be followed.
    """

    neurons: int  # of one sample
    counted: int
    dead: int
    dead_static: int
    never_active: int
    histogram: tuple[int, ...]
    peak: float | None

    @property
    def static(self) -> float:
        """The share of dead neurons whose weights are all pruned, mean over samples."""
        return self.dead_static / self.counted if self.counted else 0.0

    @property
    def dynamic(self) -> float:
        """The share of all other dead neurons."""
        return (self.dead - self.dead_static) / self.counted if self.counted else 0.0

    @property
    def total(self) -> float:
        """The dead-neuron rate: static + dynamic."""
        return self.static + self.dynamic

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "static": self.static,
            "dynamic": self.dynamic,
            "total": self.total,
            "neurons": self.neurons,
            "counted": self.counted,
            "dead": self.dead,
            "dead_static": self.dead_static,
            "never_active": self.never_active,
            "histogram": list(self.histogram),
            "peak": self.peak,
        }


@dataclass(frozen=True)
class Granularity(Rates):
    """The rates of a network, and of each of its layers in the order in which the network calls them."""

    layers: Mapping[str, Rates] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**super().as_dict(), "layers": {name: layer.as_dict() for name, layer in self.layers.items()}}


@dataclass(frozen=True)
class Unattributed:
    """An activation of which one cannot say which weights feed it.

    Its dead neurons are counted, as dynamic, unless `why` says that they could not be.
    """

    layer: str
    why: str

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"layer": self.layer, "why": self.why}


@dataclass(frozen=True)
class DeadNeurons:
    """Dead-neuron rates at both granularities, from the same samples.

    `unit`: every number that an activation function returns is a neuron. `channel`: a channel is one, dead for a sample
    when its whole map is.
    """

    unit: Granularity
    channel: Granularity
    samples: int
    unattributed: tuple[Unattributed, ...] = ()
    companions: Companions | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON, in an order that does not change."""
        return {
            "samples": self.samples,
            "unit": self.unit.as_dict(),
            "channel": self.channel.as_dict(),
            "unattributed": [layer.as_dict() for layer in self.unattributed],
            "companions": None if self.companions is None else self.companions.as_dict(),
        }


def rates_of(times_dead: Tensor, unfed: Tensor | None, samples: int) -> Rates:
    """From how often each neuron was dead in so many samples, and which ones no live weight feeds (None: all are fed).

    >>> rates_of(torch.tensor([0, 1, 4, 4]), torch.tensor([False, False, False, True]), samples=4).as_dict()["total"]
    0.5625
    """
    if unfed is not None:
        unfed = unfed.to(times_dead.device)
    fed = times_dead if unfed is None else times_dead[~unfed]
    bins = times_dead.flatten().long() * BINS // samples + (times_dead.flatten() > 0)
    return Rates(
        neurons=times_dead.numel(),
        counted=times_dead.numel() * samples,
        dead=int(times_dead.sum()),
        dead_static=0 if unfed is None else int(times_dead[unfed].sum()),
        never_active=int((fed == samples).sum()),
        histogram=tuple(torch.bincount(bins, minlength=BINS + 2).tolist()),
        peak=int(fed.max()) / samples if fed.numel() else 0.0,
    )


def rates_without_identity(neurons: int, counted: int, dead: Tensor, unfed: Tensor | None) -> Rates:
    """Where neurons come and go between batches: `dead` and `unfed` by channel, and nothing of a single neuron."""
    static = 0 if unfed is None else int(dead[unfed].sum())
    return Rates(neurons, counted, int(dead.sum()), static, 0, (0,) * (BINS + 2), None)


def together(layers: Mapping[str, Rates]) -> Granularity:
    """The rates of a network from those of its layers: each neuron counts the same."""
    parts = list(layers.values())
    histogram = tuple(map(sum, zip(*(part.histogram for part in parts), strict=True))) or (0,) * (BINS + 2)
    return Granularity(
        neurons=sum(part.neurons for part in parts),
        counted=sum(part.counted for part in parts),
        dead=sum(part.dead for part in parts),
        dead_static=sum(part.dead_static for part in parts),
        never_active=sum(part.never_active for part in parts),
        histogram=histogram,
        peak=_largest(part.peak for part in parts),
        layers=dict(layers),
    )


def _largest(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)
