"""What neurons do and what a pruned network can still hold: dead neurons, sparsity measures, the information bound."""

from .bound import capacity_constant, information_bound, layer_bound
from .dead import DeadNeuronCounter, dead_neurons
from .rates import DeadNeurons, Granularity, Rates
from .sparsity import gini, hoyer, measures, sparsity

__all__ = [
    "DeadNeuronCounter",
    "DeadNeurons",
    "Granularity",
    "Rates",
    "capacity_constant",
    "dead_neurons",
    "gini",
    "hoyer",
    "information_bound",
    "layer_bound",
    "measures",
    "sparsity",
]
