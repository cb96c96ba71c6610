"""What becomes of a network as it is pruned: accuracy, dead neurons and cost."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from ..cost import BYTES_OF_A_WEIGHT
from ..cost import axes as cost_axes
from ..gathering import Gathered
from ..reference import aside, points, tables_of, within
from ..series import Point, by_variant, dead, remarks, reported
from ..trainings import KINDS, Value
from .style import DOUBLE, GREY, SMALL, density_axis, draw_published, draw_variant, legend, note, sheet, styled

APART = "What the paper counts as a neuron\nis open, so the rates that it prints\nhave a scale of their own."
DECADE = 10


@styled()
def accuracy(gathered: Gathered) -> Figure | None:
    """Test accuracy against density for every variant; bands are one sample standard deviation over seeds."""
    found = _by_variant(gathered, lambda training: training.accuracy)
    if not found:
        return None
    figure, (axes,) = sheet(DOUBLE, 3.3)
    marked = reported(gathered, _places(found))
    printed = within(points(gathered.published, gathered.study), marked)
    _draw(axes, found)
    _draw_published(axes, printed, aside(marked, len(printed)))
    density_axis(axes, marked, DOUBLE - 0.7)
    axes.set_ylabel("test accuracy (%)")
    legend(figure, found, "published" if printed else "")
    table = tables_of(gathered.published, gathered.study)
    beside = f"; published points ({table}) stand to the right of their λ"
    note(figure, remarks(gathered) + (beside if printed else ""))
    return figure


@styled()
def dead_neurons(gathered: Gathered) -> Figure | None:
    """Static and dynamic dead-neuron rates at the end of training against density, of units and of channels."""
    found = {(of, what): _by_variant(gathered, dead(of, what)) for of, what in KINDS}
    variants = found["unit", "static"]
    if not variants:
        return None
    marked = reported(gathered, _places(variants))
    printed = within(points(gathered.published_rates, gathered.study), marked)
    columns = 3 if printed else 2
    figure, panels = sheet(DOUBLE, 4.3, 2, columns, sharex=True)
    for place, (of, what) in enumerate(found):
        axes = panels[place // 2 * columns + place % 2]
        _draw(axes, found[of, what])
        axes.set_title(f"{what}, {of}s")
        if what == "static":
            if not axes.dataLim.y1:
                axes.set_ylim(-0.05, 1.0)  # nothing is dead: an axis around 0 would show its rounding
            axes.set_ylabel("dead-neuron rate (%)")
    if printed:
        _draw_published(panels[2], printed)
        panels[2].set_title("dynamic, published")
        panels[-1].set_axis_off()
        panels[-1].text(0, 0.9, APART, transform=panels[-1].transAxes, va="top", color=GREY, fontsize=SMALL)
    for axes in panels:
        density_axis(axes, marked, DOUBLE / columns - 0.6, name=axes in panels[2:])
    panels[columns - 1].tick_params(labelbottom=bool(printed))
    legend(figure, variants, "published" if printed else "")
    note(figure, remarks(gathered))
    return figure


@styled()
def size_and_operations(gathered: Gathered) -> Figure | None:
    """Test accuracy against alive weights (with their bytes in float32) and against multiply-adds for one image."""
    if gathered.layer_costs is None:
        return None
    places = cost_axes(gathered.layer_costs)
    found = {name: _by_variant(gathered, lambda one: one.accuracy, x) for name, x in places.items()}
    variants = found["alive weights"]
    if not variants:
        return None
    figure, panels = sheet(DOUBLE, 3.1, 1, 2, sharey=True)
    for (name, lines), axes in zip(found.items(), panels, strict=True):
        _draw(axes, lines)
        _amounts(axes, _places(lines))
        axes.set_xlabel(name)
    panels[0].set_ylabel("test accuracy (%)")
    _bytes_above(panels[0])
    legend(figure, variants)
    note(figure, remarks(gathered))
    return figure


def _by_variant(gathered: Gathered, value: Value, x: Value | None = None) -> dict[str, list[Point]]:
    return {variant: [spot.point for spot in found] for variant, found in by_variant(gathered, value, x).items()}


def _draw(axes: Axes, found: Mapping[str, list[Point]]) -> None:
    for variant, own in found.items():
        draw_variant(axes, variant, own)


def _draw_published(axes: Axes, printed: Mapping[str, list[Point]], step: float = 1.0) -> None:
    """`step`: the factor by which each variant in its turn is moved aside."""
    for turn, (variant, own) in enumerate(printed.items(), 1):
        draw_published(axes, variant, own, shift=step**turn)


def _places(found: Mapping[str, list[Point]]) -> list[float]:
    return [point.x for own in found.values() for point in own]


def _amounts(axes: Axes, numbers: list[float]) -> None:
    """A log axis of weights or operations."""
    axes.set_xscale("log")
    margin = max((max(numbers) / min(numbers)) ** 0.04, 1.05)
    axes.set_xlim(min(numbers) / margin, max(numbers) * margin)
    _ticks(axes, *axes.get_xlim())


def _bytes_above(axes: Axes) -> None:
    """What so many weights take, along the upper edge."""
    low, high = (BYTES_OF_A_WEIGHT * end for end in axes.get_xlim())
    upper = axes.twiny()
    upper.set_xscale("log")
    upper.set_xlim(low, high)
    upper.spines[:].set_visible(False)
    upper.spines["top"].set_visible(True)
    upper.grid(False)
    _ticks(upper, low, high, "B")


def _ticks(axes: Axes, low: float, high: float, unit: str = "") -> None:
    """At 1, 2 and 5 of each decade, fewer where there are many decades, more where there is hardly one."""
    many, few = high / low > 2 * DECADE**2, high / low < DECADE / 2
    locator = MaxNLocator(4) if few else LogLocator(DECADE, subs=(1.0, 3.0) if many else (1.0, 2.0, 5.0))
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(EngFormatter(unit))
    axes.xaxis.set_minor_locator(NullLocator())
