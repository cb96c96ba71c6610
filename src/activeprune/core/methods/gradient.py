"""Methods that look at the derivatives of the training loss."""

from __future__ import annotations

from torch import Tensor

from ..evidence import Evidence
from . import SCORE_BATCHES, method


@method("global_gradient")
def global_gradient(weight: Tensor, grad: Tensor) -> Tensor:
    """|w · g|, g the gradient of the training loss in eval mode."""
    return (weight * grad).abs()


@method("snip", chain="at_init", batches=SCORE_BATCHES)
def snip(evidence: Evidence) -> dict[str, Tensor]:
    """|w · g| before any training (Lee et al. 2019).

    Batch-norm uses batch statistics here: running ones have not seen an image yet.
    """
    grads = evidence.gradient(batch_statistics=True)
    return {name: (weight * grads[name]).abs() for name, weight in evidence.weights.items()}


@method("fisher", batches=SCORE_BATCHES)
def fisher(evidence: Evidence) -> dict[str, Tensor]:
    """w² · E[g²] / 2 with g the gradient of one sample's loss (Theis et al. 2018)."""
    squares = evidence.squared_gradient()
    return {name: weight.square() * squares[name] / 2 for name, weight in evidence.weights.items()}


@method("obd", batches=SCORE_BATCHES)
def obd(evidence: Evidence, probes: int = 32) -> dict[str, Tensor]:
    """w² · diag(H) / 2, H the Hessian of the training loss (LeCun et al. 1990).

    The diagonal is Hutchinson's estimate from `probes` random sign vectors a batch.
    """
    curvature = evidence.hessian_diagonal(probes)
    return {name: weight.square() * curvature[name] / 2 for name, weight in evidence.weights.items()}
