"""What is known of the layers of a run's networks: their densities, and where their neurons die."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .series import by_layer
from .trainings import Reported, Trainings

DENSITY, DYNAMIC, STATIC = "density (%)", "dynamic DNR (%)", "static DNR (%)"

OfLayers = Callable[[Reported], Mapping[str, float]]
Cells = dict[str, dict[int, dict[str, float]]]  # by variant, cycle and layer


def maps(gathered: Trainings) -> dict[str, Cells]:
    """What is known of the layers; no map that is 0 everywhere."""
    quantities: dict[str, OfLayers] = {DENSITY: _density, DYNAMIC: _dead("dynamic"), STATIC: _dead("static")}
    found = {name: _cells(gathered, of) for name, of in quantities.items()}
    for by in found[DENSITY].values():
        by[0] = dict.fromkeys(layer_names(found[DENSITY]), 1.0)
    return {name: cells for name, cells in found.items() if any(values_of(cells))}


def _density(training: Reported) -> Mapping[str, float]:
    return {name.removesuffix(".weight"): value for name, value in training.layers.items()}


def _dead(what: str) -> OfLayers:
    def of(training: Reported) -> Mapping[str, float]:
        found = {} if training.after is None else training.after["unit"]["layers"]
        return {name: layer[what] for name, layer in found.items()}

    return of


def _cells(gathered: Trainings, of: OfLayers) -> Cells:
    cells = {v: {c: by_layer(gathered.of(v, c).values(), of) for c in gathered.cycles} for v in gathered.study.variants}
    known = {variant: {c: layers for c, layers in by.items() if layers} for variant, by in cells.items()}
    return {variant: by for variant, by in known.items() if by}


def layer_names(cells: Cells) -> list[str]:
    """In the order of the network."""
    return [*dict.fromkeys(name for by in cells.values() for layers in by.values() for name in layers)]


def values_of(cells: Cells) -> list[float]:
    """All of them, in per cent."""
    return [100 * value for by in cells.values() for layers in by.values() for value in layers.values()]
