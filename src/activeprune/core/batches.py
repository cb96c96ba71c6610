"""What a batch may be, and how a model is called with it.

A tensor is the model's input; a tuple or list is (input, target); a mapping holds the model's keyword
arguments, as Hugging Face models take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .errors import InputError

Batch = Tensor | tuple[Any, Any] | list[Any] | Mapping[str, Any]
Batches = Iterable[Batch]
LossFn = Callable[[Any, Any], Tensor]


def inputs_of(batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments for the model."""
    if isinstance(batch, Tensor):
        return (batch,), {}
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return (batch[0],), {}
    raise InputError(
        f"a batch is a tensor, a pair (input, target) or a dict of model arguments, got {_described(batch)}"
    )


def loss_of(model: nn.Module, tensors: Mapping[str, Tensor], batch: Batch, loss_fn: LossFn | None) -> Tensor:
    """The loss of one batch with `tensors` in place of the model's own parameters and buffers.

    `loss_fn(output, target)`, cross-entropy by default; for a dict `loss_fn(output, batch)`, by default the
    `loss` that the model's output carries.
    """
    arguments, keywords = inputs_of(batch)
    output = functional_call(model, dict(tensors), arguments, keywords)
    if isinstance(batch, Mapping):
        loss = loss_fn(output, batch) if loss_fn else getattr(output, "loss", None)
        if loss is None:
            raise InputError("the model's output has no `loss`: pass loss_fn(output, batch)")
    elif isinstance(batch, Tensor):
        raise InputError("a loss needs targets: pass batches as pairs (input, target)")
    else:
        loss = (loss_fn or nn.functional.cross_entropy)(output, batch[1])
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError(f"loss_fn must return one number, got {_described(loss)}")
    return loss.reshape(())


def samples_of(batch: Batch) -> list[Batch]:
    """The batch as batches of one sample each."""
    if isinstance(batch, Tensor):
        return list(torch.split(batch, 1))
    if isinstance(batch, Mapping):
        size = max(len(value) for value in batch.values() if isinstance(value, Tensor))
        return [{k: v[i : i + 1] if isinstance(v, Tensor) else v for k, v in batch.items()} for i in range(size)]
    return [(x, y) for x, y in zip(torch.split(batch[0], 1), torch.split(batch[1], 1), strict=True)]


def _described(thing: object) -> str:
    if isinstance(thing, torch.Tensor):
        return f"a tensor of shape {tuple(thing.shape)}"
    if isinstance(thing, (tuple, list)):
        return f"a {type(thing).__name__} of {len(thing)}"
    return type(thing).__name__
