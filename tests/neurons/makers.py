"""Layers with given weights, networks of them whose dead neurons can be counted by hand, and how these are counted."""

import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.neurons import DeadNeurons, Rates
from activeprune.neurons.again import Removed, RepeatedCounter

NOTHING: dict[str, list[int]] = {}
TWO = torch.tensor([[2.0, 1.0], [1.0, 2.0]])


def linear(rows: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(rows[0]), len(rows), bias=bias is not None)
    layer.weight.data = torch.tensor(rows, dtype=torch.float32)
    if bias is not None:
        layer.bias.data = torch.tensor(bias)
    return layer


def pointwise(rows: list[list[float]]) -> nn.Conv2d:
    """A 1 × 1 convolution."""
    layer = nn.Conv2d(len(rows[0]), len(rows), 1, bias=False)
    layer.weight.data = torch.tensor(rows, dtype=torch.float32)[:, :, None, None]
    return layer


def pruned(model: nn.Module, rows: dict[str, list[int]]) -> ap.Masks:
    """Masks without these outputs of these layers."""
    masks = {name: mask.clone() for name, mask in ap.Masks.dense(model).items()}
    for layer, outputs in rows.items():
        masks[f"{layer}.weight"][outputs] = False
    return ap.Masks(masks)


def measured(model: nn.Module, x: Tensor, rows: dict[str, list[int]] = NOTHING, **options) -> DeadNeurons:
    return ap.dead_neurons(model, pruned(model, rows), [x], **options)


def counts(rates: Rates) -> tuple[int, int, int]:
    """Static, dynamic, and all that was counted."""
    return rates.dead_static, rates.dead - rates.dead_static, rates.counted


def looked_at(counter: RepeatedCounter, model: nn.Module, removed: Removed, batches: list[torch.Tensor]) -> None:
    """Counts once more, and as a new counter does."""
    counter.again(model.state_dict(), removed)
    for batch in batches:
        counter.add(batch)
    assert counter.result() == ap.dead_neurons(model, removed.masks, batches)
