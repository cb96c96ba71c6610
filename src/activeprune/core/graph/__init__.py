"""The weight graph: its structure, and how it is found."""

from .structure import IDENTITY, Barrier, Layer, Link, Scale, WeightGraph
from .trace import trace

__all__ = ["IDENTITY", "Barrier", "Layer", "Link", "Scale", "WeightGraph", "trace"]
