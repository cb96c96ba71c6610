"""The weight graph: which weight feeds which neuron, and which weight reads it.

A neuron is a channel of a tensor somewhere between two weights; each has a number. What one output channel of a layer
computes is a neuron, and so is a sum of several, and what a normalisation makes of one. Layers connect neurons through
weights, links connect them without. Everything that looks at neighbours (lookahead scores, dead neurons, the removal
of dead neurons) reads this one structure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import InputError, unknown
from .signals import Ids

Mode = Literal["identity", "term", "scale"]
IDENTITY = "identity"


@dataclass(frozen=True)
class Layer:
    """One weight and the neurons on its two sides, as pairs (neuron, index along the weight's own axis).

    Usually every index has one pair. It has several where the weight is used more than once or where the neuron
    depends on the position; a neuron has several indices where a map of pixels is flattened.
    """

    weight: str
    shape: tuple[int, ...]
    groups: int
    inputs_first: bool  # [inputs, outputs, ...], as in a transposed convolution, instead of [outputs, inputs, ...]
    reads: Ids  # [pairs, 2]: neuron, input index
    feeds: Ids  # [pairs, 2]: neuron, output index

    def blocks(self, weight: Tensor) -> Tensor:
        """The weight as [groups, outputs per group, inputs per group, kernel positions]."""
        blocks = weight.reshape(self.groups, self.shape[0] // self.groups, self.shape[1], -1)
        return blocks.transpose(1, 2) if self.inputs_first else blocks

    def unblocked(self, blocks: Tensor) -> Tensor:
        """The inverse of `blocks`."""
        return (blocks.transpose(1, 2) if self.inputs_first else blocks).reshape(self.shape)


@dataclass(frozen=True)
class Scale:
    """What a normalisation, or a product with a parameter, multiplies each channel by."""

    kind: Literal["batch_norm", "layer_norm", "product"]
    weight: str | None  # γ by name
    variance: str | None = None  # running variance by name
    epsilon: float = 0.0

    def factors(self, tensors: Mapping[str, Tensor], channel: Ids) -> NDArray[np.float64]:
        """|γ| / √(var + ε) of these channels; a normalisation by a sample's own statistics counts |γ|."""
        factor = np.ones(len(channel))
        if self.weight is not None:
            factor = np.abs(_wide(tensors[self.weight])[channel])
        if self.variance is not None:
            factor = factor / np.sqrt(_wide(tensors[self.variance])[channel] + self.epsilon)
        return factor


@dataclass(frozen=True)
class Link:
    """Neurons that become other neurons without a weight in between.

    `term`: a summand that nothing else reads, so what feeds it feeds the sum. `identity`: a summand that is a neuron
    in its own right, a skip connection. `scale`: a normalisation.
    """

    mode: Mode
    source: Ids
    target: Ids
    scale: Scale | None = None
    channel: Ids | None = None  # of the scale
    making: bool = False  # the scale is part of how a neuron is made: nothing else reads its source
    group: Ids | None = None  # sources of one group are normalised by statistics of them all


@dataclass(frozen=True)
class Barrier:
    """An operation that the graph cannot see through: its neighbours are unknown on both sides."""

    operator: str
    where: str  # the module that called it
    why: str


@dataclass(frozen=True)
class Activation:
    """A place where the model calls an activation function whose output can be dead."""

    name: str  # as `Naming` gives it: "relu", "layer1.0.relu", "blocks.0:relu#2"
    kind: str  # "relu", "gelu", ...
    shape: tuple[int, ...]  # of the tensor, in the traced call
    neurons: Ids  # its neurons, of full length or 1 along each axis


@dataclass(frozen=True)
class WeightGraph:
    """The weights of a model by name, the neurons between them, and what could not be followed.

    `outside`: neurons that come from elsewhere than weights (the input, an embedding, a barrier); `cut` says which
    barrier. `exposed`: neurons that go elsewhere than to weights (the output, attention scores, a barrier).
    """

    size: int  # how many neuron numbers there are
    layers: Mapping[str, Layer]
    links: tuple[Link, ...]  # a link's sources come before its targets
    outside: NDArray[np.bool_]
    exposed: NDArray[np.bool_]
    barriers: tuple[Barrier, ...]
    activations: tuple[Activation, ...] = ()  # in the order in which the model calls them
    cut: Mapping[int, int] = field(default_factory=dict)  # neuron -> index of the barrier that it comes from
    samples: int | None = None  # that it was traced with, where that is known

    @classmethod
    def untraceable(cls, why: str) -> WeightGraph:
        """Of a model that cannot be traced: nothing is known of it but the reason."""
        nobody = np.zeros(0, dtype=bool)
        return cls(0, {}, (), nobody, nobody, (Barrier("torch.export", "", why),))

    @property
    def why_unknown(self) -> str | None:
        """Why nothing is known of the model; None if something is."""
        return None if self.size else self.barriers[0].why if self.barriers else "no weight was found in it"

    def feeding(self, weight: str) -> frozenset[str]:
        """The weights next to `weight` on its input side, and "identity" where a skip connection arrives."""
        names = self._names(backwards=False)
        return frozenset().union(*(names[neuron] for neuron in self._layer(weight).reads[:, 0].tolist()))

    def reading(self, weight: str) -> frozenset[str]:
        """The weights next to `weight` on its output side, and "identity" where a skip connection leaves."""
        names = self._names(backwards=True)
        return frozenset().union(*(names[neuron] for neuron in self._layer(weight).feeds[:, 0].tolist()))

    def _layer(self, weight: str) -> Layer:
        if weight not in self.layers:
            raise unknown("weight in the graph", weight, self.layers)
        return self.layers[weight]

    def _names(self, backwards: bool) -> list[frozenset[str]]:
        """For every neuron the weights that feed it, or backwards that read it."""
        names: list[frozenset[str]] = [frozenset()] * self.size
        for layer in self.layers.values():
            for neuron in np.unique((layer.reads if backwards else layer.feeds)[:, 0]).tolist():
                names[neuron] |= {layer.weight}
        for link in reversed(self.links) if backwards else self.links:
            here, there = (link.target, link.source) if backwards else (link.source, link.target)
            for before, after in zip(here.tolist(), there.tolist(), strict=True):
                names[after] |= {IDENTITY} if link.mode == "identity" else names[before]
        return names

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuses the tensors of another model."""
        if absent := next((name for name in self.layers if name not in tensors), None):
            raise InputError(f"the weight graph is of another model: this one has no {absent!r}")
        self.check_masks(tensors)

    def check_masks(self, masks: Mapping[str, Tensor]) -> None:
        """Refuses masks of another model; there may be weights without one."""
        for name, layer in self.layers.items():
            if name in masks and (shape := tuple(masks[name].shape)) != layer.shape:
                raise InputError(f"the weight graph is of another model: {name!r} is {layer.shape} there, {shape} here")


def checked_graph(graph: object, model: nn.Module) -> WeightGraph:
    """What was passed as the weight graph of a model, if it is that."""
    if not isinstance(graph, WeightGraph):
        raise InputError(f"graph must come from ap.trace(model, example_input), not be a {type(graph).__name__}")
    graph.check(dict(model.named_parameters()))
    return graph


def _wide(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().reshape(-1).cpu().double().numpy()
