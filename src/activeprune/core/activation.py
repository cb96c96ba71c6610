"""AP's choice of weights whose removal wakes dead neurons up (the paper's Algorithm 1), and its parts.

A rule is a function `(journey, count) -> chosen`: it chooses among the alive weights of the whole network and
returns bool tensors by name, True = chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from .errors import InputError, kind_of, listed
from .masks import Masks, checked_masks
from .prunable import plain_names
from .randomness import generator
from .registry import Registered, Registry
from .selection import lowest

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Journey:
    """The alive weights on their way from θ0, where a training started, to θ*, where it ended."""

    alive: Tensors
    trained: Tensors
    start: Tensors
    generator: torch.Generator

    def movement(self) -> dict[str, Tensor]:
        """|θ* - θ0|: small where the neuron was often dead."""
        return {name: (self.trained[name] - self.start[name]).abs_() for name in self.alive}

    def negative(self) -> dict[str, Tensor]:
        """Alive and θ* < 0: without it, the neuron's pre-activation rises."""
        return {name: (self.trained[name] < 0).logical_and_(alive) for name, alive in self.alive.items()}

    def random_numbers(self) -> dict[str, Tensor]:
        """A uniform random number for every weight."""
        return {
            name: torch.rand(alive.shape, generator=self.generator).to(alive.device)
            for name, alive in self.alive.items()
        }


Function = TypeVar("Function", bound=Callable[[Journey, int], dict[str, Tensor]])


@dataclass(frozen=True)
class Rule(Registered):
    """A named way to choose `count` weights."""

    version: int = 1  # counted up when it chooses other weights: results are kept by it


RULES: Registry[Rule] = Registry("activation rule", "activeprune.rules", make=Rule)


def activation_rule(name: str, *, version: int = 1) -> Callable[[Function], Function]:
    """Registers an activation rule under `name`; `version` is counted up when its code chooses other weights."""
    return RULES.register(name, version=version)


@activation_rule("ap")
def ap(journey: Journey, count: int) -> dict[str, Tensor]:
    """Of the negative weights, those that moved least: Algorithm 1."""
    return lowest(journey.movement(), journey.negative(), count, "movement")


@activation_rule("ap_first_q")
def ap_first_q(journey: Journey, count: int) -> dict[str, Tensor]:
    """Of all weights, the `count` that moved least; the negative ones among them go. Algorithm 1 read literally."""
    first = lowest(journey.movement(), journey.alive, count, "movement")
    below_zero = journey.negative()
    return {name: chosen & below_zero[name] for name, chosen in first.items()}


@activation_rule("least_moved")
def least_moved(journey: Journey, count: int) -> dict[str, Tensor]:
    """Those that moved least, of any sign: AP without its second step."""
    return lowest(journey.movement(), journey.alive, count, "movement")


@activation_rule("negative")
def negative(journey: Journey, count: int) -> dict[str, Tensor]:
    """Random negative weights: AP without its first step."""
    return lowest(journey.random_numbers(), journey.negative(), count, "random numbers")


@activation_rule("random")
def random(journey: Journey, count: int) -> dict[str, Tensor]:
    """Random weights: AP without either step."""
    return lowest(journey.random_numbers(), journey.alive, count, "random numbers")


def activate(  # noqa: PLR0913  options by name
    masks: Masks, trained: Tensors, start: Tensors, count: int, rule: str = "ap", seed: int = 0, cycle: int = 0
) -> Masks:
    """`count` fewer alive, chosen by AP: of the negative weights of θ* (`trained`), those that moved least from θ0
    (`start`). Both are state dicts. Movement is computed in float32.

    Fewer than `count` go when the rule finds no more candidates. Where no weight has moved, the order of the layers
    chooses. Rules that draw random numbers draw them by `seed` and `cycle`.

    >>> masks = Masks({"w": torch.ones(4, dtype=torch.bool)})
    >>> trained = {"w": torch.tensor([-1.0, 0.5, -0.2, -0.3])}
    >>> start = {"w": torch.tensor([-1.1, 0.5, 0.3, -0.9])}
    >>> activate(masks, trained, start, 2)["w"]
    tensor([False,  True, False,  True])
    """
    chosen_rule = RULES[rule]
    count = checked_masks(masks).checked_count(count)
    journey = Journey(
        alive=masks,
        trained=weights_in(trained, masks, "trained"),
        start=weights_in(start, masks, "start"),
        generator=generator(seed, "rule", cycle),
    )
    chosen = chosen_rule.function(journey, count)
    _check_choice(chosen, masks, count, f"activation rule {rule!r}")
    return masks.without(chosen)


def weights_in(state: Tensors, masks: Masks, role: str) -> dict[str, Tensor]:
    """The masked weights of a state dict, checked, in float32."""
    state = plain_names(state)
    if absent := [name for name in masks if name not in state]:
        raise InputError(f"{role} state of another model: it has no {listed(absent)}")
    weights = {}
    for name, mask in masks.items():
        if not isinstance(state[name], Tensor):
            raise InputError(f"{role} state: {name!r} is {kind_of(state[name])}, a tensor is needed")
        weight = weights[name] = state[name].detach().to(mask.device, torch.float32)
        if weight.shape != mask.shape:
            raise InputError(
                f"{role} state of another model: {name!r} is {tuple(weight.shape)}, its mask {tuple(mask.shape)}"
            )
        # A finite sum shows that every value is finite, in one fast pass.
        if not weight.sum().isfinite() and bool((~weight.isfinite() & mask).any()):
            raise InputError(f"{role} weights of layer {name!r} are NaN or infinite")
    return weights


def _check_choice(chosen: Tensors, masks: Masks, count: int, whose: str) -> None:
    """Whether what a rule returned, perhaps a stranger's, is a choice of at most `count` alive weights."""
    for name, mask in masks.items():
        choice = chosen.get(name)
        if choice is None or choice.dtype != torch.bool or choice.shape != mask.shape:
            raise InputError(f"{whose} must return a bool tensor of shape {tuple(mask.shape)} for layer {name!r}")
        if bool((choice & ~mask).any()):
            raise InputError(f"{whose} chose weights of layer {name!r} that are pruned already")
    if (number := sum(int(choice.count_nonzero()) for choice in chosen.values())) > count:
        raise InputError(f"{whose} chose {number} weights, it may choose {count}")
