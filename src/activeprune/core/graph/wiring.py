"""The weight graph while it is being built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .signals import NOBODY, Ids, combinations, pairs_along
from .structure import Activation, Barrier, Layer, Link, Mode, Scale, WeightGraph


@dataclass(frozen=True)
class Value:
    """What is known of a tensor of the traced model."""

    shape: tuple[int, ...]
    ids: Ids | None = None  # neuron numbers; None: a constant, that is a parameter or a function of parameters
    name: str | None = None  # of the parameter or buffer that this is, in any shape
    weight: bool = False  # a parameter as it stands, or transposed
    swapped: bool = False  # that parameter transposed
    alone: bool = False  # what weights and sums made, at most scaled and shifted since, and with a single reader


class Opaque(Exception):
    """Raised by a rule that cannot say where the neurons go."""


@dataclass(frozen=True)
class Weight:
    """A parameter as a layer uses it: [outputs, inputs / groups, ...], or [inputs, outputs / groups, ...]."""

    name: str
    shape: tuple[int, ...]
    groups: int
    inputs_first: bool

    @classmethod
    def of(cls, value: Value, groups: int = 1, inputs_first: bool = False) -> Weight:
        """As it stands in the model, which an operator may see transposed; no other tensor can be one."""
        if not value.weight or value.name is None or len(value.shape) < 2:
            raise Opaque("its weight is not a parameter")
        shape = value.shape[::-1] if value.swapped else value.shape
        return cls(value.name, tuple(shape), groups, inputs_first ^ value.swapped)


@dataclass
class Wiring:
    """The graph while it is being built."""

    count: int = 0
    layers: dict[str, Layer] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    outside: list[int] = field(default_factory=list)
    exposed: list[Ids] = field(default_factory=list)
    barriers: list[Barrier] = field(default_factory=list)
    activations: list[Activation] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)

    def new(self, count: int) -> Ids:
        """Numbers for `count` more neurons."""
        self.count += count
        return np.arange(self.count - count, self.count, dtype=np.int64)

    def source(self, shape: Sequence[int], behind: Barrier | None = None) -> Value:
        """One neuron that stands for a whole tensor that no weight feeds, or a barrier hides which."""
        ids = self.new(1)
        self.outside += ids.tolist()
        if behind is not None:
            self.cut[int(ids[0])] = self.barriers.index(behind)
        return Value(tuple(shape), ids.reshape([1] * len(shape)))

    def expose(self, value: Any) -> None:
        """Notes that something else than a weight reads this."""
        if isinstance(value, Value) and value.ids is not None:
            self.exposed.append(np.unique(value.ids))
        elif isinstance(value, (list, tuple)):
            for part in value:
                self.expose(part)

    def layer(self, read: Value, axis: int, weight: Weight, shape: Sequence[int]) -> Value:
        """A weight that reads channel `axis` of a tensor and makes a tensor of `shape` with channels at that axis."""
        known_ids = np.full([1] * len(read.shape), NOBODY) if read.ids is None else read.ids
        axis %= len(shape)
        known = self.layers.get(weight.name)
        if known is not None and (known.groups, known.inputs_first) != (weight.groups, weight.inputs_first):
            raise Opaque("its weight is used in another way elsewhere")
        ids = self.new(shape[axis])
        reads = pairs_along(known_ids, axis, read.shape[axis])
        feeds = np.stack([ids, np.arange(len(ids))], axis=1)
        if known is not None:  # the same weight, used once more
            reads, feeds = np.concatenate([known.reads, reads]), np.concatenate([known.feeds, feeds])
        self.layers[weight.name] = Layer(weight.name, weight.shape, weight.groups, weight.inputs_first, reads, feeds)
        return Value(tuple(shape), ids.reshape([-1 if a == axis else 1 for a in range(len(shape))]), alone=True)

    def scaled(self, value: Value, scale: Scale, channel: Ids, together: int | None = None) -> Value:
        """Every neuron times the factor of its channel; `channel` is in the form of neuron numbers.

        `together`: how many neighbouring channels share the statistics of a sample.
        """
        assert value.ids is not None
        found, row = combinations(value.ids, channel)
        known = found[:, 0] != NOBODY
        ids = np.full(len(found), NOBODY)
        ids[known] = self.new(int(known.sum()))
        channels = found[known, 1]
        group = None if together is None else channels // together
        self.links.append(Link("scale", found[known, 0], ids[known], scale, channels, value.alone, group))
        return replace(value, ids=ids[row])

    def summed(self, parts: Sequence[Value], shape: Sequence[int]) -> Value:
        """The sum of several tensors that carry neurons."""
        found, row = combinations(*(part.ids for part in parts if part.ids is not None))
        somebody = (found != NOBODY).any(axis=1)
        ids = np.full(len(found), NOBODY)
        ids[somebody] = self.new(int(somebody.sum()))
        for column, part in enumerate(parts):
            known = found[:, column] != NOBODY
            mode: Mode = "term" if part.alone else "identity"
            self.links.append(Link(mode, found[known, column], ids[known]))
        return Value(tuple(shape), ids[row], alone=True)

    def finished(self) -> WeightGraph:
        """The graph."""
        outside, exposed = np.zeros(self.count, dtype=bool), np.zeros(self.count, dtype=bool)
        outside[self.outside] = True
        for ids in self.exposed:
            exposed[ids[ids != NOBODY]] = True
        return WeightGraph(
            self.count,
            self.layers,
            tuple(self.links),
            outside,
            exposed,
            tuple(self.barriers),
            tuple(self.activations),
            self.cut,
        )
