"""The weight graph: its structure, how it is found, and which of its neurons live weights feed."""

from .activations import Naming, kind_of
from .fed import fed_neurons
from .structure import Link, WeightGraph
from .trace import trace

__all__ = [
    "Link",
    "Naming",
    "WeightGraph",
    "fed_neurons",
    "kind_of",
    "trace",
]
