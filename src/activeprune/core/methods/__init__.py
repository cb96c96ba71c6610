"""Pruning methods X: each one small function, found by its name.

A method returns scores, higher = keep. It names what it needs as its parameters:

- a function of one layer takes any of `weight`, `mask`, `grad` (gradient of the training loss) and
  `generator` (seeded, on the CPU), and returns a tensor of the weight's shape;
- a function of the whole network takes `evidence` (see `Evidence`) and returns a dict of tensors by name.

Parameters with a default are options: `score("obd", ..., probes=64)`. Every module of this folder is
imported here, so a new method is a new function in one file and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from ..errors import InputError, listed, unknown
from ..evidence import Evidence
from ..registry import Function, Registered, Registry, import_files_of

Scope = Literal["global", "layer"]
Chain = Literal["reinit", "rewind", "continue", "at_init"]

OF_A_LAYER = ("weight", "mask", "grad", "generator")
OF_THE_NETWORK = "evidence"
SCORE_BATCHES = 20  # of the training data, for a method that looks at the loss
RESERVED = ("method", "model", "masks", "batches", "loss_fn", "graph", "seed", "cycle")  # parameters of `score`


@dataclass(frozen=True)
class Method(Registered):
    """A score and how it is meant to be used."""

    scope: Scope = "global"  # whether its scores compare across layers
    chain: Chain | None = None  # the only chain of trainings it is defined for
    rounds: int = 1  # in how many rounds of scoring it removes its share
    batches: int | None = None  # how many batches it wants by default; None: what its parameters tell
    graph: bool = False  # whether it looks at the weight graph
    version: int = 1  # counted up when the same weights get other scores: results are kept by it

    def __post_init__(self) -> None:
        asked = [p.name for p in self.parameters() if p.default is p.empty]
        if asked != [OF_THE_NETWORK] and (not asked or not set(asked) <= set(OF_A_LAYER)):
            raise InputError(
                f"method {self.name!r} takes ({', '.join(asked)}): a method takes {OF_THE_NETWORK}, "
                f"or any of {', '.join(OF_A_LAYER)}; options need a default"
            )
        if taken := [option for option in self.options if option in RESERVED]:
            raise InputError(f"method {self.name!r}: an option cannot be called {listed(taken)}")
        if self.scope not in get_args(Scope):
            raise unknown("scope", self.scope, get_args(Scope))
        if self.chain is not None and self.chain not in get_args(Chain):
            raise unknown("chain", self.chain, get_args(Chain))
        if self.rounds < 1:
            raise InputError(f"method {self.name!r}: rounds = {self.rounds}, at least 1 is needed")
        if self.batches is None:
            object.__setattr__(self, "batches", SCORE_BATCHES if "grad" in asked else 0)

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuses an option that the method does not have, or a value of another type than its default."""
        for option, value in options.items():
            if option not in self.options:
                raise unknown("option", option, self.options)
            kind = type(self.options[option])
            fits = type(value) is kind or (kind is float and type(value) is int) or kind is type(None)
            if not fits:
                raise InputError(f"option {option} = {value!r} must be of type {kind.__name__}")

    def scores(self, evidence: Evidence, options: dict[str, Any]) -> dict[str, Tensor]:
        """Scores by name."""
        needs = [p.name for p in self.parameters()]
        if OF_THE_NETWORK in needs:
            found = self.function(evidence, **options)
            if not isinstance(found, Mapping):
                raise InputError(f"it must return scores by name, not {type(found).__name__}")
            return dict(found)
        grads = evidence.gradient() if "grad" in needs else {}
        scores = {}
        for name, mask in evidence.masks.items():
            weight = evidence.weights[name]
            offers = {
                "weight": weight,
                "mask": mask.to(weight.device),
                "grad": grads.get(name),
                "generator": evidence.generator,
            }
            scores[name] = self.function(**{need: offers[need] for need in needs if need in offers}, **options)
        return scores


METHODS: Registry[Method] = Registry("method", "activeprune.methods", make=Method)


def method(  # noqa: PLR0913  options by name
    name: str,
    *,
    scope: Scope = "global",
    chain: Chain | None = None,
    rounds: int = 1,
    batches: int | None = None,
    graph: bool = False,
    version: int = 1,
) -> Callable[[Function], Function]:
    """Registers a method of one's own under `name`.

    `scope`: whether scores compare over the whole network or within a layer; `chain`: the only chain of trainings it
    is defined for; `rounds`: in how many rounds of scoring it removes its share; `batches`: how many batches of
    training data it wants (20 for a function that takes `grad`); `graph`: whether it looks at the weight graph;
    `version`: to be counted up when its code changes, so that a study does not take old results for new ones.

    >>> @method("large_first_row")
    ... def large_first_row(weight, mask):
    ...     return weight.abs() / (1 + weight[:1].abs())
    """
    return METHODS.register(
        name, scope=scope, chain=chain, rounds=rounds, batches=batches, graph=graph, version=version
    )


import_files_of(__name__, __path__)
