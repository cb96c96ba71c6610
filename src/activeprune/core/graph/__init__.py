"""The weight graph: its structure, how it is found, and which of its neurons live weights feed."""

from .activations import Naming, kind_of
from .fed import fed_neurons
from .structure import Activation, Barrier, Link, WeightGraph, checked_graph
from .trace import trace

__all__ = [
    "Activation",
    "Barrier",
    "Link",
    "Naming",
    "WeightGraph",
    "checked_graph",
    "fed_neurons",
    "kind_of",
    "trace",
]
