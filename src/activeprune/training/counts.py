"""How many batches each batch norm has seen, counted beside the steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class BatchCounts:
    """The `num_batches_tracked` of a network, which no result depends on.

    Counting costs a kernel for each batch norm and step; where it is `left_out`, `add` does it for many steps at once.
    A norm without a momentum reads its count, and one with a `forward` of its own may: these go on by themselves.
    """

    def __init__(self, model: nn.Module) -> None:
        self._norms = [module for module in model.modules() if _only_counts(module)]
        self._counts: list[Tensor] = [norm.num_batches_tracked for norm in self._norms]  # type: ignore[misc]
        self._a_step: list[Tensor] = [torch.ones_like(count) for count in self._counts]

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Notes what one step adds to each: a norm may be used twice, or not at all."""
        before = [count.clone() for count in self._counts]
        yield
        self._a_step = [count - was for count, was in zip(self._counts, before, strict=True)]

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """In here a step counts nothing."""
        for norm in self._norms:
            norm._buffers["num_batches_tracked"] = None
        try:
            yield
        finally:
            for norm, count in zip(self._norms, self._counts, strict=True):
                norm._buffers["num_batches_tracked"] = count

    def add(self, steps: int) -> None:
        """Counts steps that were left out."""
        if self._counts:
            torch._foreach_add_(self._counts, torch._foreach_mul(self._a_step, steps))


def _only_counts(module: nn.Module) -> bool:
    counts = isinstance(module, _BatchNorm) and isinstance(module.num_batches_tracked, Tensor)
    return counts and type(module).forward is _BatchNorm.forward and module.momentum is not None
