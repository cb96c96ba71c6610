"""The weight graph: its structure, how it is found, and which of its neurons live weights feed."""

from .activations import Naming, kind_of
from .feeding import Feeding, feeding
from .structure import IDENTITY, Activation, Barrier, Layer, Link, Scale, WeightGraph
from .trace import trace

__all__ = [
    "IDENTITY",
    "Activation",
    "Barrier",
    "Feeding",
    "Layer",
    "Link",
    "Naming",
    "Scale",
    "WeightGraph",
    "feeding",
    "kind_of",
    "trace",
]
