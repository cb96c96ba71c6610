"""How a model is called with a batch, without changing the model.

A batch is a tensor (the model's input), a pair (input, target), or a mapping of the model's keyword arguments, as
Hugging Face models take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map

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
    if isinstance(batch, (tuple, list)) and len(batch) in (1, 2):
        return (batch[0],), {}
    raise InputError(
        f"a batch is a tensor, a pair (input, target) or a dict of model arguments, not {_described(batch)}"
    )


def size_of(batch: Batch) -> int:
    """The number of samples: the length of the input's first axis, or what most tensors of a dict agree on."""
    inputs: Any = batch if isinstance(batch, Mapping) else inputs_of(batch)[0][0]
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs
    parts = parts if isinstance(parts, Iterable) and not isinstance(parts, Tensor) else [parts]
    sizes = [len(part) for part in parts if isinstance(part, Tensor) and part.dim()]
    if not sizes:
        kind = "a dict batch" if isinstance(batch, Mapping) else "a batch"
        raise InputError(f"{kind} needs at least one tensor with a sample dimension")
    return max(sizes, key=lambda size: (sizes.count(size), size))


def one_less(batch: Batch) -> Batch:
    """The batch without its last sample, if it has more than two."""
    size = size_of(batch)
    return tree_map(lambda part: part[:-1] if _has_samples(part, size) else part, batch) if size > 2 else batch


def samples_of(batch: Batch) -> list[Batch]:
    """The batch as batches of one sample each."""
    if isinstance(batch, Tensor):
        return list(torch.split(batch, 1))
    if isinstance(batch, Mapping):
        size = size_of(batch)
        return [{name: _sample(value, i, size) for name, value in batch.items()} for i in range(size)]
    inputs, targets = batch
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor) or len(inputs) != len(targets):
        raise InputError(f"one target an input is needed, not {_described(inputs)} and {_described(targets)}")
    return [(x, y) for x, y in zip(torch.split(inputs, 1), torch.split(targets, 1), strict=True)]


def call(model: nn.Module, tensors: Mapping[str, Tensor], batch: Batch) -> Any:
    """The model's output with `tensors` in place of its own parameters and buffers of those names.

    Buffers that a forward pass updates are copies, so nothing of the model changes.
    """
    arguments, keywords = inputs_of(batch)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return functional_call(model, {**buffers, **tensors}, arguments, keywords)


def loss_of(output: Any, batch: Batch, loss_fn: LossFn | None) -> Tensor:
    """`loss_fn(output, target)`, cross-entropy by default; for a dict `loss_fn(output, batch)`, by default the `loss`
    that the output carries.
    """
    if isinstance(batch, Mapping):
        loss = loss_fn(output, batch) if loss_fn else getattr(output, "loss", None)
        if loss is None:
            raise InputError("the model's output has no `loss`: pass loss_fn(output, batch)")
    elif isinstance(batch, Tensor):
        raise InputError("a loss needs targets: pass batches as pairs (input, target)")
    else:
        loss = (loss_fn or nn.functional.cross_entropy)(output, batch[1])
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise InputError(f"a loss must be one number, not {_described(loss)}")
    return loss.reshape(())


@contextmanager
def eval_mode(model: nn.Module, batch_statistics: bool = False) -> Iterator[None]:
    """Eval mode (with batch-norm in training mode if asked for); every module's own mode comes back."""
    before = {module: module.training for module in model.modules()}
    try:
        for module in before:
            module.training = batch_statistics and isinstance(module, _BatchNorm)
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training


def _sample(value: Any, index: int, size: int) -> Any:
    return value[index : index + 1] if _has_samples(value, size) else value


def _has_samples(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == size


def _described(thing: object) -> str:
    if isinstance(thing, Tensor):
        return f"a tensor of shape {tuple(thing.shape)}"
    if isinstance(thing, (tuple, list)):
        return f"a {type(thing).__name__} of {len(thing)}"
    return type(thing).__name__
