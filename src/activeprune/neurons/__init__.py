"""What neurons do and what a pruned network can still hold: dead neurons, sparsity measures, the information bound."""

from .bound import capacity_constant, information_bound, layer_bound
from .counting import Counting
from .dead import DeadNeuronCounter, dead_neurons
from .rates import DeadNeurons, Granularity, Rates, Unattributed
from .sparsity import Companions, Measures, gini, hoyer, measures, sparsity

__all__ = [
    "Companions",
    "Counting",
    "DeadNeuronCounter",
    "DeadNeurons",
    "Granularity",
    "Measures",
    "Rates",
    "Unattributed",
    "capacity_constant",
    "dead_neurons",
    "gini",
    "hoyer",
    "information_bound",
    "layer_bound",
    "measures",
    "sparsity",
]
