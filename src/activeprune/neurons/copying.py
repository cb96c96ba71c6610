"""A model's tensors apart from the model, which can then be called without being changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def copied(
    model: nn.Module, weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """All tensors of a model, pruned weights 0, and a second copy of its buffers, which a forward pass may change."""
    with torch.inference_mode(False), torch.no_grad():
        buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
        tensors |= {name: weight.masked_fill(~masks[name].to(weight.device), 0) for name, weight in weights.items()}
        kept = {name: tensor if name in weights else tensor.clone() for name, tensor in tensors.items()}
        return kept | {name: buffer.clone() for name, buffer in buffers.items()}, buffers


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Puts back the tensors that hooks, such as those of torch.nn.utils.prune, leave in a module's attributes."""
    attributes = [vars(module) for module in model.modules()]
    before = [{name: value for name, value in own.items() if isinstance(value, Tensor)} for own in attributes]
    try:
        yield
    finally:
        for own, tensors in zip(attributes, before, strict=True):
            own.update(tensors)


def usual(thing: Any) -> Any:
    """A copy of a tensor that was made in inference mode, which cannot be traced with."""
    return thing.clone() if isinstance(thing, Tensor) and thing.is_inference() else thing
