"""Learning rates, one for every step of a training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .settings import Training

STEEPNESS = 10.0  # β of S-Cyc


def learning_rates(training: Training, steps_per_epoch: int, density: float = 1.0) -> Tensor:
    """The rate of every step, float64 [steps].

    A linear warm-up reaches the full rate in its last step; then the rate is multiplied by `drop_factor` at every drop,
    or falls along half a cosine to 0. `rates` says how a retraining uses this: `full` as it is, `finetune` its last
    value throughout, `s_cyc` with the full rate replaced by a larger one the more is pruned.

    >>> keys = {"network": "resnet8", "data": "digits", "epochs": "5it", "batch": 8}
    >>> training = Training(**keys, lr=0.1, warmup="2it", drops=["4it"])
    >>> [round(rate, 4) for rate in learning_rates(training, 100).tolist()]
    [0.05, 0.1, 0.1, 0.1, 0.01]
    """
    total = training.epochs.steps(steps_per_epoch)
    step = torch.arange(total, dtype=torch.float64)
    warmup = training.warmup.steps(steps_per_epoch)
    shape = ((step + 1) / max(warmup, 1)).clamp(max=1)
    if training.schedule == "cosine":
        along = ((step - warmup) / max(total - warmup, 1)).clamp(min=0)
        shape = shape * (1 + torch.cos(math.pi * along)) / 2
    for drop in training.drops:
        shape = torch.where(step >= drop.steps(steps_per_epoch), shape * training.drop_factor, shape)
    if training.rates == "finetune":
        shape = shape[-1:].expand(total)
    return _highest(training, density) * shape


def _highest(training: Training, density: float) -> float:
    """The rate at the end of the warm-up: for S-Cyc low + (high - low) · sigmoid(β · ((1 - λ) - 1/2))."""
    if training.rates != "s_cyc" or training.lr_high is None:
        return training.lr
    rise = 1 / (1 + math.exp(-STEEPNESS * ((1 - density) - 0.5)))
    return training.lr + (training.lr_high - training.lr) * rise
