"""Accuracy, dead neurons and cost along density, to be looked at closely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, floor, log10
from typing import Any

from bokeh.models import DataRange1d, FixedTicker, Range1d

from ..cost import axes as cost_axes
from ..gathering import Gathered
from ..reference import aside, points, within
from ..series import DENSITY_AXIS, Point, Spot, by_variant, dead, reported
from ..trainings import KINDS
from .plots import LOW, Panel, density_axis, draw_published, draw_variant, sheet

STEPS = ((1, 3), (1, 2, 5), range(1, 10), [1 + step / 10 for step in range(90)])  # of a decade
FEWEST = 3  # ticks that an axis needs
Found = dict[str, list[Spot]]


def accuracy(run: Gathered) -> list[Panel]:
    """Test accuracy against density, and the paper's points a little to the right of theirs."""
    found = by_variant(run, lambda training: training.accuracy)
    if not found:
        return []
    marked = _marked(run, found)
    printed = within(points(run.published, run.study), marked)
    return [Panel("", _along(found, marked, "test accuracy (%)", printed, aside(marked, len(printed))))]


def dead_neurons(run: Gathered) -> list[Panel]:
    """Static and dynamic rates of units and channels; the paper's have a scale of their own."""
    found = {(of, what): by_variant(run, dead(of, what)) for of, what in KINDS}
    if not found["unit", "static"]:
        return []
    marked = _marked(run, found["unit", "static"])
    panels = {
        kind: Panel(f"{kind[1]}, {kind[0]}s", _along(lines, marked, "dead-neuron rate (%)", height=LOW))
        for kind, lines in found.items()
    }
    if printed := within(points(run.published_rates, run.study), marked):
        published = Panel("dynamic, published", _along({}, marked, "dead-neuron rate (%)", printed, height=LOW))
        return [*list(panels.values())[:2], published, *list(panels.values())[2:]]
    return [*panels.values()]


def size_and_operations(run: Gathered) -> list[Panel]:
    """Test accuracy against what a pruned network costs."""
    if run.layer_costs is None:
        return []
    panels = []
    for name, x in cost_axes(run.layer_costs).items():
        if found := by_variant(run, lambda training: training.accuracy, x):
            plot = sheet(name, "test accuracy (%)", LOW + 30, x_axis_type="log")
            numbers = [spot.x for lines in found.values() for spot in lines]
            plot.x_range = DataRange1d(range_padding=0.06)
            _amounts(plot.xaxis, min(numbers), max(numbers))
            _draw(plot, found)
            panels.append(Panel("", plot))
    return panels


def short(amount: float) -> str:
    """With the letter of its thousands.

    >>> short(50_000), short(2e6), short(700)
    ('50 k', '2 M', '700')
    """
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if amount >= size:
            return f"{amount / size:g}{letter}"
    return f"{amount:g}"


def amount_ticks(low: float, high: float) -> list[float]:
    """At 1 and 3 of each decade, or closer where these are few between the ends.

    >>> amount_ticks(15e3, 270e3), amount_ticks(6.2e5, 9.5e5)
    ([20000.0, 50000.0, 100000.0, 200000.0], [700000.0, 800000.0, 900000.0])
    """
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    found: list[float] = []
    for steps in STEPS:
        found = [t for decade in decades for step in steps if low <= (t := round(step * 10.0**decade, 9)) <= high]
        if len(found) >= FEWEST:
            break
    return found


def _amounts(axis: Any, low: float, high: float) -> None:
    ticks = amount_ticks(low, high)
    axis.ticker = FixedTicker(ticks=ticks, minor_ticks=[])
    axis.major_label_overrides = {tick: short(tick) for tick in ticks}


def _along(
    found: Found,
    marked: list[float],
    y: str,
    printed: Mapping[str, Iterable[Point]] | None = None,
    step: float = 1.0,
    **options: Any,
) -> Any:
    plot = sheet(DENSITY_AXIS, y, x_axis_type="log", **options)
    _draw(plot, found)
    for turn, (variant, own) in enumerate((printed or {}).items(), 1):
        draw_published(plot, variant, [*own], step**turn)
    density_axis(plot, marked, step ** len(printed or {}))
    if found and not any(value for lines in found.values() for spot in lines for value in spot.values.values()):
        plot.y_range = Range1d(start=0.0, end=1.0)  # nothing is dead: an axis around 0 would say otherwise
    return plot


def _draw(plot: Any, found: Found) -> None:
    for variant, lines in found.items():
        draw_variant(plot, variant, lines)


def _marked(run: Gathered, found: Found) -> list[float]:
    return reported(run, [spot.x for lines in found.values() for spot in lines])
