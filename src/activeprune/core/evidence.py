"""What a method may know of the network it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from .batches import Batch, Batches, LossFn, loss_of, samples_of
from .errors import InputError
from .masks import Masks
from .prunable import unwrapped, widened
from .randomness import generator


class Evidence:
    """Weights, masks, and on demand gradients and curvature of the loss. The model itself is never changed.

    Derivatives are taken at the masked weights, in eval mode. Half-precision values are widened to float32.
    """

    def __init__(
        self,
        model: nn.Module,
        masks: Masks,
        batches: Batches | None = None,
        loss_fn: LossFn | None = None,
        graph: object = None,
        seed: int = 0,
    ) -> None:
        parameters = masks.check(model)
        self.model = unwrapped(model)
        self.masks = masks
        self.graph = graph
        self.generator = generator(seed)
        self.weights = {name: widened(parameter) for name, parameter in parameters.items()}
        self._parameters = parameters
        self._batches = batches
        self._loss_fn = loss_fn

    def batches(self) -> Iterator[Batch]:
        """The batches that were passed in; an error when there are none."""
        count = 0
        for batch in () if self._batches is None else self._batches:
            count += 1
            yield batch
        if not count:
            raise InputError("it needs batches of training data: pass batches=[(input, target), ...], e.g. 20 of them")

    @cached_property
    def gradient(self) -> dict[str, Tensor]:
        """Gradient of the loss, averaged over the batches."""
        return self._mean_over_batches(self._gradient_of)

    def gradient_with_batch_statistics(self) -> dict[str, Tensor]:
        """The same with batch-norm as in training, for a network whose running statistics have seen no data."""
        return self._mean_over_batches(self._gradient_of, batch_statistics=True)

    def squared_gradient(self) -> dict[str, Tensor]:
        """Mean over all samples of the squared gradient of a single sample's loss (empirical Fisher diagonal)."""
        samples = 0

        def squares(leaves: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
            nonlocal samples
            total = {name: torch.zeros_like(leaf, dtype=torch.float64) for name, leaf in leaves.items()}
            for sample in samples_of(batch):
                samples += 1
                for name, grad in self._gradient_of(leaves, sample).items():
                    total[name] += grad.double().square()
            return total

        total = self._sum_over_batches(squares)[0]
        return {name: (value / samples).float() for name, value in total.items()}

    def hessian_diagonal(self, probes: int) -> dict[str, Tensor]:
        """Hutchinson's estimate of diag(H): the mean of v * (H v) over `probes` random sign vectors a batch."""
        if probes < 1:
            raise InputError(f"probes = {probes}: at least 1 is needed")

        def estimate(leaves: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
            with sdpa_kernel(SDPBackend.MATH):  # the fused attention kernels have no second derivative
                loss = loss_of(self.model, self._tensors(leaves), batch, self._loss_fn)
                grads = _grad(loss, leaves, create_graph=True)
                total = {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
                for _ in range(probes):
                    signs = {name: self._signs(leaf) for name, leaf in leaves.items()}
                    slope = sum(((grads[name] * signs[name]).sum() for name in leaves), start=loss.new_zeros(()))
                    for name, product in _grad(slope, leaves, retain_graph=True).items():
                        total[name] += signs[name] * product / probes
            return total

        return self._mean_over_batches(estimate)

    # -- how

    def _mean_over_batches(
        self, of: Callable[[Mapping[str, Tensor], Batch], dict[str, Tensor]], batch_statistics: bool = False
    ) -> dict[str, Tensor]:
        total, count = self._sum_over_batches(of, batch_statistics)
        return {name: value / count for name, value in total.items()}

    def _sum_over_batches(
        self, of: Callable[[Mapping[str, Tensor], Batch], dict[str, Tensor]], batch_statistics: bool = False
    ) -> tuple[dict[str, Tensor], int]:
        """Sum of `of(masked weights, batch)` over the batches, and their number."""
        leaves = self.masked_weights()
        total: dict[str, Tensor] = {}
        count = 0
        with torch.enable_grad(), mode(self.model, batch_statistics):
            for batch in self.batches():
                count += 1
                for name, value in of(leaves, batch).items():
                    value = widened(value)
                    total[name] = total[name] + value if name in total else value
        return total, count

    def masked_weights(self) -> dict[str, Tensor]:
        """Fresh leaves of autograd: the weights in the model's own precision, pruned ones 0."""
        return {
            name: parameter.detach().masked_fill(~self.masks[name].to(parameter.device), 0).requires_grad_()
            for name, parameter in self._parameters.items()
        }

    def _gradient_of(self, leaves: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return _grad(loss_of(self.model, self._tensors(leaves), batch, self._loss_fn), leaves)

    def _tensors(self, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Leaves, and copies of the buffers, so that nothing that a forward pass updates is the model's own."""
        return {**{name: buffer.clone() for name, buffer in self.model.named_buffers()}, **leaves}

    def _signs(self, like: Tensor) -> Tensor:
        drawn = torch.randint(0, 2, like.shape, generator=self.generator, dtype=torch.int8)
        return (drawn.to(like.device).to(like.dtype) * 2).sub_(1)


def _grad(
    of: Tensor, leaves: Mapping[str, Tensor], create_graph: bool = False, retain_graph: bool = False
) -> dict[str, Tensor]:
    """Derivatives by name; a weight that the loss does not depend on has derivative 0."""
    grads = torch.autograd.grad(
        of,
        list(leaves.values()),
        create_graph=create_graph,
        retain_graph=retain_graph or create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(leaves, grads, strict=True))


@contextmanager
def mode(model: nn.Module, batch_statistics: bool = False) -> Iterator[None]:
    """Eval mode (with batch-norm in training mode if asked for); every module's own mode comes back."""
    before = {module: module.training for module in model.modules()}
    try:
        for module in before:
            module.training = batch_statistics and isinstance(module, _BatchNorm)
        yield
    finally:
        for module, training in before.items():
            module.training = training
