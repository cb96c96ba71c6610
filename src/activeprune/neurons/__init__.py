"""What neurons do and what a pruned network can still hold: sparsity measures and the information bound."""

from .bound import capacity_constant, information_bound
from .sparsity import gini, hoyer, sparsity

__all__ = ["capacity_constant", "gini", "hoyer", "information_bound", "sparsity"]
