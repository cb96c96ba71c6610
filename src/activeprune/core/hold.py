"""Pruned stays pruned, whatever the optimiser does."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .errors import InputError, kind_of, listed

# The hooks of the hold of each model, so that the next hold finds them, also where nobody kept the last one. They refer
# to the model weakly, so an entry goes with its model.
_HOOKS: weakref.WeakKeyDictionary[nn.Module, list[Any]] = weakref.WeakKeyDictionary()


class Hold:
    """Keeps pruned weights at 0 until `remove()`: see `Masks.hold`.

    Gradients are masked as they arrive (so clipping sees alive weights only) and again before every step (some arrive
    by other ways), weights after every step, weights after the model's and momentum after the optimiser's
    `load_state_dict`.
    """

    def __init__(self, model: nn.Module, masks: dict[str, Tensor], optimizers: tuple[Optimizer, ...]) -> None:
        self._layers: dict[str, _Layer] = {}
        for name, mask in masks.items():
            path, _, attribute = name.rpartition(".")
            layer = self._layers.setdefault(path, _Layer(model.get_submodule(path)))
            layer.pruned[attribute] = ~mask
        self._optimizers = optimizers
        self._refuse_strangers()
        for handle in _HOOKS.pop(model, []):
            handle.remove()
        self._handles = [handle for optimizer in optimizers for handle in self._watch(optimizer)]
        for layer in self._layers.values():
            self._handles += layer.watch()
        _HOOKS[model] = self._handles
        self._apply()
        self._clear_momentum()

    def remove(self) -> None:
        """Stops holding. Pruned weights are still 0, but the next step may move them."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def _watch(self, optimizer: Optimizer) -> list[Any]:
        return [
            optimizer.register_step_pre_hook(lambda *_: self._clear_gradients()),
            optimizer.register_step_post_hook(lambda *_: self._apply()),
            optimizer.register_load_state_dict_post_hook(lambda *_: self._clear_momentum()),
        ]

    def _apply(self) -> None:
        for layer in self._layers.values():
            layer.fill_weights()

    def _clear_gradients(self) -> None:
        for layer in self._layers.values():
            layer.fill_gradients()

    def _clear_momentum(self) -> None:
        """Zeroes what the optimisers remember of pruned weights, and their gradients."""
        self._clear_gradients()
        for layer in self._layers.values():
            for optimizer in self._optimizers:
                layer.fill_state(optimizer)

    def _refuse_strangers(self) -> None:
        """A weight that moves by an optimiser we do not know of would come back to life."""
        for optimizer in self._optimizers:
            if not hasattr(optimizer, "param_groups"):
                raise InputError(f"an optimiser is needed, not {kind_of(optimizer)}: masks.hold(model, optimizer)")
        known = {id(p) for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]}
        weights = {
            f"{path}.{attribute}".lstrip("."): weight
            for path, layer in self._layers.items()
            for attribute, weight in layer.weights()
        }
        strange = [name for name, weight in weights.items() if weight.requires_grad and id(weight) not in known]
        if strange:
            raise InputError(
                f"the optimiser does not have {listed(strange)}: pass every optimiser of this model, "
                "or freeze what is not trained with requires_grad_(False)"
            )


class _Layer:
    """The masked weights of one layer. Weights are looked up at every use: `load_state_dict` may replace them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.pruned: dict[str, Tensor] = {}  # by attribute, True = pruned

    def watch(self) -> list[Any]:
        on_load: Any = self.module.register_load_state_dict_post_hook
        handles = [on_load(_OnLoad(self))]
        pruned = self.pruned  # not self: a module that its own weight's hook refers to would never be freed
        for attribute, weight in self.weights():
            on_gradient: Any = weight.register_post_accumulate_grad_hook
            if weight.requires_grad:
                handles.append(on_gradient(lambda weight, attribute=attribute: _fill(weight.grad, pruned, attribute)))
        return handles

    def weights(self) -> list[tuple[str, nn.Parameter]]:
        return [(attribute, getattr(self.module, attribute)) for attribute in self.pruned]

    def fill_weights(self) -> None:
        for attribute, weight in self.weights():
            _fill(weight, self.pruned, attribute)

    def fill_gradients(self) -> None:
        for attribute, weight in self.weights():
            _fill(weight.grad, self.pruned, attribute)

    def fill_state(self, optimizer: Optimizer) -> None:
        for attribute, weight in self.weights():
            for value in optimizer.state.get(weight, {}).values():
                if isinstance(value, Tensor) and value.shape == weight.shape:
                    _fill(value, self.pruned, attribute)


@torch.no_grad()
def _fill(tensor: Tensor | None, pruned: dict[str, Tensor], attribute: str) -> None:
    """Zeroes a weight, its gradient or its momentum where it is pruned; the model may have moved meanwhile."""
    if tensor is not None:
        if pruned[attribute].device != tensor.device:
            pruned[attribute] = pruned[attribute].to(tensor.device)
        tensor.masked_fill_(pruned[attribute], 0)


class _OnLoad:
    """Masks a layer after `load_state_dict`. A copy or a pickle of the model is not held: there it does nothing."""

    def __init__(self, layer: _Layer | None) -> None:
        self.layer = layer

    def __call__(self, module: nn.Module, incompatible_keys: object) -> None:
        if self.layer is not None:
            self.layer.fill_weights()

    def __reduce__(self) -> tuple[type[_OnLoad], tuple[None]]:
        return _OnLoad, (None,)
