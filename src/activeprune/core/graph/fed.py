"""Which neurons live weights feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .signals import NOBODY, Ids
from .structure import Barrier, WeightGraph


@dataclass(frozen=True)
class Feeding:
    """What is known of the weights behind every neuron number of a graph.

    `fed`: a live weight feeds it, or the model's input does. `barrier`: the index of a barrier that hides what else may
    feed it, or -1.
    """

    graph: WeightGraph
    fed: NDArray[np.bool_]
    barrier: Ids

    def unfed(self, neurons: Ids) -> NDArray[np.bool_]:
        """Whether all weights that feed these neurons are pruned; constants are fed by nothing."""
        return self._of(~self.fed & (self.barrier < 0), neurons, constant=True)

    def hidden_by(self, neurons: Ids) -> Barrier | None:
        """A barrier without which one could say whether some of these neurons are fed."""
        hidden = self._of(~self.fed & (self.barrier >= 0), neurons, constant=False)
        return self.graph.barriers[int(self.barrier[neurons[hidden]].min())] if hidden.any() else None

    @staticmethod
    def _of(by_number: NDArray[np.bool_], neurons: Ids, constant: bool) -> NDArray[np.bool_]:
        return np.where(neurons == NOBODY, constant, by_number[neurons])


def fed_neurons(graph: WeightGraph, masks: Mapping[str, Tensor]) -> Feeding:
    """Follows live weights to neurons, through sums and normalisations.

    A weight without a mask is alive, whatever its values. An identity shortcut feeds a sum as a weight does, if
    anything feeds its source. What a layer norm or group norm makes of a neuron is fed by all that it is normalised
    with.
    """
    graph.check_masks(masks)
    fed, barrier = graph.outside.copy(), np.full(graph.size, -1, dtype=np.int64)
    for neuron, index in graph.cut.items():
        fed[neuron], barrier[neuron] = False, index
    for name, layer in graph.layers.items():
        neurons, outputs = layer.feeds[:, 0], layer.feeds[:, 1]
        if name in masks:
            alive = layer.blocks(masks[name]).flatten(2).any(2).flatten().cpu().numpy()
            neurons = neurons[alive[outputs]]
        fed[neurons] = True
    for link in graph.links:
        from_fed, from_barrier = fed[link.source], barrier[link.source]
        if link.group is not None and len(link.group):  # each depends on all of its group
            groups = int(link.group.max()) + 1
            any_fed, any_barrier = np.zeros(groups, dtype=bool), np.full(groups, -1, dtype=np.int64)
            np.logical_or.at(any_fed, link.group, from_fed)
            np.maximum.at(any_barrier, link.group, from_barrier)
            from_fed, from_barrier = any_fed[link.group], any_barrier[link.group]
        np.logical_or.at(fed, link.target, from_fed)
        np.maximum.at(barrier, link.target, from_barrier)
    return Feeding(graph, fed, barrier)
