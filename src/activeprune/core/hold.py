"""Pruned stays pruned, whatever the optimiser does."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .errors import InputError


class Hold:
    """Keeps pruned weights at 0 until `remove()`: see `Masks.hold`.

    Four hooks: gradients are masked as they arrive (so clipping sees alive weights only), weights after every
    step, weights after the model's and momentum after the optimiser's `load_state_dict`.
    """

    def __init__(self, model: nn.Module, masks: dict[str, Tensor], optimizer: Optimizer) -> None:
        self._fills: dict[str, _Fill] = {}  # by layer
        for name, mask in masks.items():
            layer, _, attribute = name.rpartition(".")
            self._fills.setdefault(layer, _Fill()).pruned[attribute] = ~mask
        self._layers = {layer: model.get_submodule(layer) for layer in self._fills}
        self._optimizer = optimizer
        self._refuse_stranger()
        handles = [
            optimizer.register_step_post_hook(lambda *_: self._apply()),
            optimizer.register_load_state_dict_post_hook(lambda *_: self._clear_momentum()),
        ]
        for layer, fill in self._fills.items():
            on_load: Any = self._layers[layer].register_load_state_dict_post_hook
            handles.append(on_load(fill))
            for attribute, weight in fill.weights(self._layers[layer]):
                on_gradient: Any = weight.register_post_accumulate_grad_hook
                if weight.requires_grad:
                    handles.append(on_gradient(_GradientFill(fill, attribute)))
        self._handles = handles
        self._apply()
        self._clear_momentum()

    def remove(self) -> None:
        """Stops holding. Pruned weights are still 0, but the next step may move them."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _apply(self) -> None:
        for layer, fill in self._fills.items():
            fill(self._layers[layer])

    @torch.no_grad()
    def _clear_momentum(self) -> None:
        """Zeroes what the optimiser remembers of pruned weights, and their gradients."""
        for layer, fill in self._fills.items():
            for attribute, weight in fill.weights(self._layers[layer]):
                remembered = [v for v in self._optimizer.state.get(weight, {}).values() if isinstance(v, Tensor)]
                for tensor in [*remembered, weight.grad]:
                    if tensor is not None and tensor.shape == weight.shape:
                        tensor.masked_fill_(fill.at(attribute, tensor.device), 0)

    def _refuse_stranger(self) -> None:
        held = {id(p) for group in self._optimizer.param_groups for p in group["params"]}
        weights = (w for layer, fill in self._fills.items() for _, w in fill.weights(self._layers[layer]))
        if not any(id(weight) in held for weight in weights):
            raise InputError("the optimiser holds none of the masked weights: was it made for another model?")


class _Fill:
    """Zeroes the pruned weights of one layer; also its load_state_dict hook.

    An object rather than a closure, so that a held model can still be copied and pickled; it acts on the
    module it is called with, so that a copy masks its own weights.
    """

    def __init__(self) -> None:
        self.pruned: dict[str, Tensor] = {}  # by attribute, True = pruned

    def __call__(self, module: nn.Module, *_: Any) -> None:
        with torch.no_grad():
            for attribute, weight in self.weights(module):
                weight.masked_fill_(self.at(attribute, weight.device), 0)

    def weights(self, module: nn.Module) -> list[tuple[str, nn.Parameter]]:
        return [(attribute, getattr(module, attribute)) for attribute in self.pruned]

    def at(self, attribute: str, device: torch.device) -> Tensor:
        """Where the weight is pruned, on its device; the model may have moved since."""
        pruned = self.pruned[attribute]
        if pruned.device != device:
            pruned = self.pruned[attribute] = pruned.to(device)
        return pruned


class _GradientFill:
    """Zeroes the gradient of pruned weights as soon as it has been accumulated."""

    def __init__(self, fill: _Fill, attribute: str) -> None:
        self.fill, self.attribute = fill, attribute

    def __call__(self, weight: Tensor) -> None:
        if weight.grad is not None:
            with torch.no_grad():
                weight.grad.masked_fill_(self.fill.at(self.attribute, weight.grad.device), 0)
