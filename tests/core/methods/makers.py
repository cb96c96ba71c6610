"""Gradients by the way that anybody would take, and scores compared where weights are alive."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import activeprune as ap
from tests.helpers import snapshot


def masked(model: nn.Module, masks: ap.Masks) -> dict[str, Tensor]:
    """The model's weights with pruned ones 0."""
    return {n: torch.where(masks[n], p.detach(), 0.0) for n, p in model.named_parameters() if n in masks}


def batch_gradient(model: nn.Module, masks: ap.Masks, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """By loss.backward() on a copy of the network with pruned weights 0."""
    model.load_state_dict(snapshot(model) | masked(model, masks))
    model.zero_grad()
    cross_entropy(model(x), y).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if name in masks}


def mean(of: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([one[name] for one in of]).mean(0) for name in of[0]}


def assert_alive_close(
    scores: dict[str, Tensor], expected: dict[str, Tensor], masks: ap.Masks, rtol: float = 1e-5
) -> None:
    assert list(scores) == list(masks)
    for name, mask in masks.items():
        torch.testing.assert_close(scores[name][mask].float(), expected[name][mask].float(), rtol=rtol, atol=1e-9)
