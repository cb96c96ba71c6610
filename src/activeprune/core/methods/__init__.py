"""Pruning methods X: each one small function, found by its name.

A method returns scores, higher = keep. It names what it needs as its parameters:

- a function of one layer takes any of `weight`, `mask`, `grad` (gradient of the training loss) and
  `generator` (seeded, on the CPU), and returns a tensor of the weight's shape;
- a function of the whole network takes `evidence` (see `Evidence`) and returns a dict of tensors by name.

Parameters with a default are options: `score("obd", ..., probes=64)`. Every module of this folder is
imported here, so a new method is a new function in one file and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, TypeVar

from torch import Tensor

from ..errors import InputError, unknown
from ..evidence import Evidence
from ..registry import Registry, origin_of, summary_of

Scope = Literal["global", "layer"]
Function = TypeVar("Function", bound=Callable[..., Any])
OF_A_LAYER = ("weight", "mask", "grad", "generator")
OF_THE_NETWORK = "evidence"


@dataclass(frozen=True)
class Method:
    """A score and how it is meant to be used."""

    name: str
    function: Callable[..., Any]
    scope: Scope = "global"  # whether its scores compare across layers
    chain: str | None = None  # the only chain of trainings it is defined for
    rounds: int = 1  # in how many rounds of scoring it removes its share

    def __post_init__(self) -> None:
        asked = [p.name for p in self._parameters() if p.default is p.empty]
        if asked != [OF_THE_NETWORK] and (not asked or not set(asked) <= set(OF_A_LAYER)):
            raise InputError(
                f"method {self.name!r} takes ({', '.join(asked)}): a method takes {OF_THE_NETWORK}, "
                f"or any of {', '.join(OF_A_LAYER)}; options need a default"
            )
        if self.scope not in ("global", "layer"):
            raise unknown("scope", self.scope, ("global", "layer"))

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return summary_of(self.function)

    @property
    def options(self) -> dict[str, Any]:
        """Its options and their defaults."""
        return {p.name: p.default for p in self._parameters() if p.default is not p.empty}

    def __call__(self, evidence: Evidence, **options: Any) -> dict[str, Tensor]:
        """Scores by name."""
        for option in options:
            if option not in self.options:
                raise unknown(f"option of method {self.name!r}", option, self.options)
        needs = [p.name for p in self._parameters()]
        if OF_THE_NETWORK in needs:
            scores: dict[str, Tensor] = self.function(evidence, **options)
            return scores
        return {name: self.function(**_of_layer(evidence, name, needs), **options) for name in evidence.masks}

    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.function).parameters.values())


def _of_layer(evidence: Evidence, name: str, needs: list[str]) -> dict[str, Any]:
    """What a function of one layer asked for; gradients are computed only if it did."""
    offers: dict[str, Callable[[], Any]] = {
        "weight": lambda: evidence.weights[name],
        "mask": lambda: evidence.masks[name].to(evidence.weights[name].device),
        "grad": lambda: evidence.gradient[name],
        "generator": lambda: evidence.generator,
    }
    return {need: offers[need]() for need in needs if need in offers}


METHODS: Registry[Method] = Registry("method", "activeprune.methods", make=Method)


def method(
    name: str, *, scope: Scope = "global", chain: str | None = None, rounds: int = 1
) -> Callable[[Function], Function]:
    """Registers a method of one's own under `name`.

    >>> @method("large_first_row")
    ... def large_first_row(weight, mask):
    ...     return weight.abs() / (1 + weight[:1].abs())
    """

    def register(function: Function) -> Function:
        METHODS.add(name, Method(name, function, scope, chain, rounds), origin_of(function))
        return function

    return register


for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
