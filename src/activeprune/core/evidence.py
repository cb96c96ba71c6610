"""What a method may know of the network it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .calling import Batch, call, eval_mode, samples_of
from .errors import InputError
from .graph import WeightGraph, checked_graph, trace
from .loss import Loss
from .masks import Masks, checked_masks
from .precision import widened
from .prunable import unwrapped

Tensors = dict[str, Tensor]
OfBatch = Callable[[Tensors, Batch], Tensors]


class Evidence:
    """Weights, masks, and on demand gradients and curvature of the loss. The model itself is never changed.

    Derivatives are taken at the masked weights, in eval mode. Half-precision values are widened to float32.
    """

    def __init__(
        self,
        model: nn.Module,
        masks: Masks,
        generator: torch.Generator,
        loss: Loss,
        graph: WeightGraph | None = None,
    ) -> None:
        self._parameters = checked_masks(masks).weights_of(model)
        self.model = unwrapped(model)
        self.masks = masks
        self.generator = generator
        self.weights = {name: widened(parameter) for name, parameter in self._parameters.items()}
        self._loss = loss
        self._graph = graph

    def versions(self) -> dict[str, int]:
        """How often each weight of the model has been changed in place."""
        return {name: parameter._version for name, parameter in self._parameters.items()}

    @property
    def graph(self) -> WeightGraph:
        """The weight graph that was passed in, or one traced with the first batch; an error without either."""
        if self._graph is None:
            if self._loss.batches is None:
                raise InputError("it needs the weight graph of the model: pass graph=ap.trace(model, example_input)")
            first, self._loss = self._loss.peeked()
            self._graph = trace(self.model, first)
        return checked_graph(self._graph, self.model)

    def batches(self) -> Iterator[Batch]:
        """The batches that were passed in; an error when there are none."""
        return iter(self._loss)

    def masked_weights(self) -> Tensors:
        """Fresh leaves of autograd: the weights in the model's own precision, pruned ones 0."""
        with torch.inference_mode(False):
            return {
                name: parameter.detach().masked_fill(~self.masks[name].to(parameter.device), 0).requires_grad_()
                for name, parameter in self._parameters.items()
            }

    def gradient(self, batch_statistics: bool = False) -> Tensors:
        """Gradient of the loss, averaged over the batches.

        With `batch_statistics` batch-norm works as in training: for a network whose running statistics have seen
        no data yet.
        """
        total, count = self._sum_over_batches(self._gradient_of, batch_statistics)
        return {name: value / count for name, value in total.items()}

    def squared_gradient(self) -> Tensors:
        """Mean over all samples of the squared gradient of a single sample's loss (empirical Fisher diagonal)."""
        samples = 0

        def squares(leaves: Tensors, batch: Batch) -> Tensors:
            nonlocal samples
            total = {name: torch.zeros_like(leaf, dtype=torch.float64) for name, leaf in leaves.items()}
            for sample in samples_of(batch):
                samples += 1
                for name, grad in self._gradient_of(leaves, sample).items():
                    total[name] += grad.double().square()
            return total

        total, _ = self._sum_over_batches(squares)
        return {name: (value / samples).to(self.weights[name].dtype) for name, value in total.items()}

    def hessian_diagonal(self, probes: int) -> Tensors:
        """Hutchinson's estimate of diag(H): the mean of v * (H v) over `probes` random sign vectors a batch."""
        if probes < 1:
            raise InputError(f"probes = {probes}: at least 1 is needed")

        def estimate(leaves: Tensors, batch: Batch) -> Tensors:
            with sdpa_kernel(SDPBackend.MATH):  # a GPU's fused attention kernels have no second derivative
                loss = self._loss.of(call(self.model, leaves, batch), batch)
                grads = gradients(loss, leaves, create_graph=True)
                total = {name: widened(torch.zeros_like(leaf)) for name, leaf in leaves.items()}
                for _ in range(probes):
                    signs = {name: self._signs(leaf) for name, leaf in leaves.items()}
                    slope = sum(((grads[name] * signs[name]).sum() for name in leaves), start=loss.new_zeros(()))
                    for name, product in gradients(slope, leaves, retain_graph=True).items():
                        total[name] += signs[name] * product / probes
            return total

        total, count = self._sum_over_batches(estimate)
        return {name: value / count for name, value in total.items()}

    def _sum_over_batches(self, of: OfBatch, batch_statistics: bool = False) -> tuple[Tensors, int]:
        """Sum of `of(masked weights, batch)` over the batches, and their number."""
        leaves = self.masked_weights()
        total: Tensors = {}
        count = 0
        with torch.inference_mode(False), torch.enable_grad(), eval_mode(self.model, batch_statistics):
            for batch in self.batches():
                count += 1
                for name, value in of(leaves, batch).items():
                    value = widened(value)
                    total[name] = total[name] + value if name in total else value
        return total, count

    def _gradient_of(self, leaves: Tensors, batch: Batch) -> Tensors:
        return gradients(self._loss.of(call(self.model, leaves, batch), batch), leaves)

    def _signs(self, like: Tensor) -> Tensor:
        drawn = torch.randint(0, 2, like.shape, generator=self.generator, dtype=torch.int8)
        return (drawn.to(like.device).to(like.dtype) * 2).sub_(1)


def gradients(
    of: Tensor, leaves: Mapping[str, Tensor], create_graph: bool = False, retain_graph: bool = False
) -> Tensors:
    """Derivatives by name; a weight that the loss does not depend on has derivative 0."""
    if not of.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    grads = torch.autograd.grad(
        of,
        list(leaves.values()),
        create_graph=create_graph,
        retain_graph=retain_graph or create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(leaves, grads, strict=True))
