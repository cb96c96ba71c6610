"""Activating-while-Pruning: prune a network with any method X, and wake its dead neurons up on the way.

>>> import torch
>>> import activeprune as ap
>>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
>>> masks = ap.Masks.dense(model)
>>> n_x, n_ap = ap.Budget(p=0.20, q=0.02).split(masks.alive)
>>> scores = ap.score("global_magnitude", model, masks)
>>> masks = ap.prune_lowest(masks, scores, n_x)
>>> masks.alive, masks.total
(157, 192)
"""

from typing import TYPE_CHECKING, Any

from .core.activation import activate, activation_rule
from .core.budget import Budget
from .core.errors import InputError
from .core.graph import WeightGraph, trace
from .core.masks import Masks
from .core.methods import method
from .core.pruning import Pruned, prune_cycle, prune_lowest, prune_solo, score
from .networks import build
from .neurons import capacity_constant, dead_neurons, information_bound
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .experiment import results, run

__all__ = [
    "Budget",
    "InputError",
    "Masks",
    "Pruned",
    "WeightGraph",
    "activate",
    "activation_rule",
    "build",
    "capacity_constant",
    "dead_neurons",
    "information_bound",
    "method",
    "prune_cycle",
    "prune_lowest",
    "prune_solo",
    "results",
    "run",
    "score",
    "trace",
]


def __getattr__(name: str) -> Any:
    """`run` and `results` bring packages that the rest does not need, so they come when they are asked for."""
    if name not in ("results", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import experiment

    return getattr(experiment, name)
