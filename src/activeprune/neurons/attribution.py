"""From the activations of a running model to the weights that feed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.graph import WeightGraph, fed_neurons
from ..core.graph.activations import place_of
from ..core.graph.signals import NOBODY, Ids
from .watching import Tally


@dataclass(frozen=True)
class Unfed:
    """Which neurons of an activation no live weight feeds, None where all may be fed; `why` one cannot say more."""

    units: Tensor | None = None  # in the shape of a sample, or by channel where units are not followed
    channels: Tensor | None = None
    why: str | None = None


class Attribution:
    """What the weight graph, where there is one, knows of each activation by name."""

    def __init__(self, graph: WeightGraph | None) -> None:
        self.graph = graph
        traced = () if graph is None else graph.activations
        self._lengths = {activation.name: activation.shape[0] for activation in traced if activation.shape}
        self._neurons = {activation.name: activation.neurons for activation in traced}
        self._calls = Counter(place_of(activation.name) for activation in traced)

    @property
    def names(self) -> Iterable[str]:
        """Of all activations that were traced."""
        return self._neurons

    def by_samples(self, name: str, length: int, samples: int) -> bool:
        """Whether a first axis of this length is that of so many samples, each perhaps several times.

        A graph that was traced with another number of samples can tell; otherwise a multiple of them is taken for it.
        """
        traced, of = self._lengths.get(name), None if self.graph is None else self.graph.samples
        if traced is None or of is None or of == samples:
            return length % samples == 0
        return length % samples == 0 and length * of == traced * samples

    def axis(self, name: str, shape: Sequence[int]) -> int | None:
        """The axis of a sample of this shape along which neurons differ, if there is exactly one."""
        ids = self._ids(name, shape)
        axes = [] if ids is None else [axis for axis, length in enumerate(ids.shape) if length > 1]
        return axes[0] if len(axes) == 1 else None

    def unfed(
        self,
        tallies: Mapping[str, Tally],
        calls: Mapping[str, int],
        masks: Mapping[str, Tensor],
        regular: bool = True,
    ) -> dict[str, Unfed]:
        """For every activation the neurons that no live weight feeds; `calls` are those of each place in one pass,
        `regular` says that every pass called the same activations in the same order.
        """
        if self.graph is None or self.graph.why_unknown is not None:
            why = "the model was not traced" if self.graph is None else self.graph.why_unknown
            return {name: Unfed(why=why) for name in tallies}
        if not regular:
            return {name: Unfed(why="other batches call other activations") for name in tallies}
        behind = fed_neurons(self.graph, masks)
        found = {}
        for name, tally in tallies.items():
            place = place_of(name)
            if not tally.samples:
                found[name] = Unfed(why="its first axis is not that of the samples")
            elif name not in self._neurons:
                found[name] = Unfed(why="it was not called when the model was traced")
            elif calls[place] != self._calls[place]:
                traced = self._calls[place]
                found[name] = Unfed(why=f"called {calls[place]} times in a pass, {traced} times when it was traced")
            elif (ids := self._fitting(name, tally)) is None:
                found[name] = Unfed(why="it was traced with another shape")
            elif (barrier := behind.hidden_by(ids)) is not None:
                why = f"{barrier.operator} in {barrier.where or 'the model'}: {barrier.why}"
                found[name] = _spread_out(behind.unfed(ids), tally, why)
            elif self.graph.outside[ids[ids != NOBODY]].all():
                found[name] = Unfed(why="no weight feeds it")
            else:
                found[name] = _spread_out(behind.unfed(ids), tally, None)
        return found

    def _fitting(self, name: str, tally: Tally) -> Ids | None:
        """The neurons of a sample, or of its channels where units are not followed."""
        if tally.units is not None:
            return self._ids(name, tally.units.shape)
        neurons = self._neurons[name]
        return neurons.reshape(-1) if neurons.size in (1, *tally.channels.shape) else None

    def _ids(self, name: str, shape: Sequence[int]) -> Ids | None:
        """The neurons of a sample of this shape, in broadcast form."""
        neurons = self._neurons.get(name)
        if neurons is None or len(neurons) != 1:
            return None
        ids = neurons[0]
        ids = ids.reshape([1] * (len(shape) - ids.ndim) + list(ids.shape))
        fits = ids.ndim == len(shape) and all(a in (1, b) for a, b in zip(ids.shape, shape, strict=True))
        return ids if fits else None


def _spread_out(unfed: NDArray[np.bool_], tally: Tally, why: str | None) -> Unfed:
    if not unfed.any():
        return Unfed(why=why)
    device = tally.channels.device
    shape = tally.channels.shape if tally.units is None else tally.units.shape
    units = torch.from_numpy(np.broadcast_to(unfed, shape).copy()).to(device)
    if tally.units is None:
        return Unfed(units, units, why)
    return Unfed(units, units.movedim(tally.axis, 0).reshape(len(tally.channels), -1).all(1), why)
