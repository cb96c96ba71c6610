"""The loss that a method may look at: batches of training data, and what is computed of a model's output on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from torch import Tensor

from .calling import Batch, Batches, LossFn, loss_of
from .errors import InputError, kind_of


@dataclass(frozen=True, eq=False)
class Loss:
    """`function(output, target)` over `batches`, by default cross-entropy; without batches it cannot be asked for."""

    batches: Batches | None = None
    function: LossFn | None = None

    def __post_init__(self) -> None:
        is_class = isinstance(self.function, type)  # which would be built, not called
        if self.function is not None and (is_class or not callable(self.function)):
            raise InputError(f"loss_fn must be a function of (output, target), not {kind_of(self.function)}")

    def __iter__(self) -> Iterator[Batch]:
        """The batches; an error when there are none."""
        count = 0
        for batch in () if self.batches is None else self.batches:
            count += 1
            yield batch
        if not count:
            raise InputError("it needs batches of training data: pass batches=[(input, target), ...]")

    def of(self, output: Any, batch: Batch) -> Tensor:
        """The loss of a model's output on a batch, one number."""
        return loss_of(output, batch, self.function)

    def peeked(self) -> tuple[Batch, Loss]:
        """The first batch, and the loss over all of them as before."""
        first = next(iter(self))
        if isinstance(self.batches, Iterator):
            return first, replace(self, batches=chain([first], self.batches))
        return first, self
