"""Pruned stays pruned, whatever the optimiser does."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .errors import InputError, listed

_HELD: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Hold]] = weakref.WeakKeyDictionary()


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
        if (earlier := _HELD.get(model)) and (hold := earlier()):
            hold.remove()
        _HELD[model] = weakref.ref(self)
        self._handles = [handle for optimizer in optimizers for handle in self._watch(optimizer)]
        for layer in self._layers.values():
            self._handles += layer.watch()
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

    @torch.no_grad()
    def _clear_momentum(self) -> None:
        """Zeroes what the optimisers remember of pruned weights, and their gradients."""
        self._clear_gradients()
        for layer in self._layers.values():
            for attribute, weight in layer.weights():
                for optimizer in self._optimizers:
                    for value in optimizer.state.get(weight, {}).values():
                        if isinstance(value, Tensor) and value.shape == weight.shape:
                            value.masked_fill_(layer.pruned_at(attribute, value.device), 0)

    def _refuse_strangers(self) -> None:
        """A weight that moves by an optimiser we do not know of would come back to life."""
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
        for attribute, weight in self.weights():
            on_gradient: Any = weight.register_post_accumulate_grad_hook
            if weight.requires_grad:
                handles.append(on_gradient(lambda weight, attribute=attribute: self._fill_gradient(attribute, weight)))
        return handles

    def weights(self) -> list[tuple[str, nn.Parameter]]:
        return [(attribute, getattr(self.module, attribute)) for attribute in self.pruned]

    @torch.no_grad()
    def fill_weights(self) -> None:
        for attribute, weight in self.weights():
            weight.masked_fill_(self.pruned_at(attribute, weight.device), 0)

    def fill_gradients(self) -> None:
        for attribute, weight in self.weights():
            self._fill_gradient(attribute, weight)

    @torch.no_grad()
    def _fill_gradient(self, attribute: str, weight: Tensor) -> None:
        if weight.grad is not None:
            weight.grad.masked_fill_(self.pruned_at(attribute, weight.grad.device), 0)

    def pruned_at(self, attribute: str, device: torch.device) -> Tensor:
        """Where the weight is pruned, on its device; the model may have moved since."""
        pruned = self.pruned[attribute]
        if pruned.device != device:
            pruned = self.pruned[attribute] = pruned.to(device)
        return pruned


class _OnLoad:
    """Masks a layer after `load_state_dict`. A copy or a pickle of the model is not held: there it does nothing."""

    def __init__(self, layer: _Layer | None) -> None:
        self.layer = layer

    def __call__(self, module: nn.Module, incompatible_keys: object) -> None:
        if self.layer is not None:
            self.layer.fill_weights()

    def __reduce__(self) -> tuple[type[_OnLoad], tuple[None]]:
        return _OnLoad, (None,)
