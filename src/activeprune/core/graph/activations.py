"""Which functions are activations whose output can be dead, and what each place where a model calls one is called.

The traced graph and a running model find the same places under the same names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from torch import nn

AT_ZERO = ("relu", "relu6", "hardtanh", "clamp", "threshold")
"""Functions with a floor of exactly 0."""
NEAR_ZERO = ("gelu", "silu", "mish", "hardswish")
"""Functions that only come close to 0."""

SPELT = {"clamp_min": "clamp", "clip": "clamp"}
FLOOR = {"hardtanh": "min_val", "clamp": "min", "threshold": "value"}  # the argument that has to be 0
OPERATORS = {*AT_ZERO, *NEAR_ZERO, *SPELT}


def kind_of(operator: str, arguments: Mapping[str, Any]) -> str | None:
    """The activation that a call is, by operator name and named arguments; None where nothing can be dead.

    >>> kind_of("relu", {}), kind_of("clamp_min", {"min": 0}), kind_of("clamp", {"min": -1}), kind_of("tanh", {})
    ('relu', 'clamp', None, None)
    >>> kind_of("hardtanh", {"min_val": 0.0, "max_val": 6.0})
    'relu6'
    """
    if operator not in OPERATORS:
        return None
    kind = SPELT.get(operator, operator)
    if kind in FLOOR:
        floor = arguments.get(FLOOR[kind])
        if not isinstance(floor, (int, float)) or floor != 0:
            return None
    return "relu6" if kind == "hardtanh" and arguments.get("max_val") == 6 else kind


class Naming:
    """Names the activations of a model in the order in which one forward pass calls them.

    A module that holds nothing, such as `nn.ReLU`, gives its own name; a function called elsewhere is named after the
    module that calls it, as in "blocks.0:relu", or alone in the model's own `forward`. The second call under a name is
    "blocks.0:relu#2".
    """

    def __init__(self, model: nn.Module) -> None:
        self._path = {id(module): path for path, module in model.named_modules()}
        self._first = {path: self._path[id(m)] for path, m in model.named_modules(remove_duplicate=False)}
        self._bare = {path for path, module in model.named_modules() if _holds_nothing(module)}
        self.calls: Counter[str] = Counter()

    def path(self, module: object) -> str | None:
        """The name of a module, the first one where it has several; None if it is none of this model's."""
        return self._path.get(id(module))

    def place(self, path: str, kind: str) -> str:
        """What an activation is called that the module at this path calls."""
        path = self._first.get(path, path)
        if not path:
            return kind
        return path if path in self._bare else f"{path}:{kind}"

    def next(self, path: str, kind: str) -> str:
        """What the next such activation is called, told apart from the earlier calls of this pass."""
        place = self.place(path, kind)
        self.calls[place] += 1
        return numbered(place, self.calls[place])

    def restart(self) -> None:
        """Another forward pass begins."""
        self.calls.clear()


def numbered(place: str, call: int) -> str:
    """The name of the first, second, ... call at a place.

    >>> numbered("relu", 1), numbered("relu", 2)
    ('relu', 'relu#2')
    """
    return place if call == 1 else f"{place}#{call}"


def place_of(name: str) -> str:
    """The inverse of `numbered`.

    >>> place_of("blocks.0:relu#12")
    'blocks.0:relu'
    """
    place, _, call = name.rpartition("#")
    return place if place and call.isdecimal() else name


def _holds_nothing(module: nn.Module) -> bool:
    return next(module.children(), None) is None and next(module.parameters(recurse=False), None) is None
