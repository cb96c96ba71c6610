"""What becomes of a network as it is pruned: accuracy, dead neurons and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import exp, isclose, log

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from ..cost import BYTES_OF_A_WEIGHT, Cost, cost, layers_of_study
from ..gathering import Gathered, Reported
from .reference import accuracies, dynamic_rates
from .series import Point, Value, along_density, dead, densities, over_seeds
from .style import DOUBLE, GREY, SMALL, density_axis, draw_published, draw_variant, legend, note, sheet, styled

BESIDE = 0.011  # of the axis between points at the same density, where there is room
WITHIN = 0.45  # of the way to the next density: no point stands nearer to another one than to its own
NARROW = 1.5  # the least range of densities that this is meant for
NEAR = 1.06  # densities that differ by less are the same: the paper prints 5.72 % for 0.8¹³ = 5.50 %
APART = "What the paper counts as a neuron\nis open, so the rates that it prints\nhave a scale of their own."
KINDS = ("unit", "channel")
PARTS = ("static", "dynamic")
DECADE = 10


@styled()
def accuracy(gathered: Gathered) -> Figure | None:
    """Test accuracy against density for every variant; bands are one sample standard deviation over seeds."""
    found = _by_variant(gathered, lambda training: training.accuracy)
    if not found:
        return None
    figure, (axes,) = sheet(DOUBLE, 3.3)
    marked = reported(gathered, _places(found))
    table, points = accuracies(gathered.study)
    printed = within(points, marked)
    _draw(axes, found)
    _draw_published(axes, printed, aside(marked, len(printed)))
    density_axis(axes, marked, DOUBLE - 0.7)
    axes.set_ylabel("test accuracy (%)")
    legend(figure, found, "published" if printed else "")
    beside = f"; published points ({table}) stand to the right of their λ"
    note(figure, remarks(gathered) + (beside if printed else ""))
    return figure


@styled()
def dead_neurons(gathered: Gathered) -> Figure | None:
    """Static and dynamic dead-neuron rates at the end of training against density, of units and of channels."""
    found = {(of, what): _by_variant(gathered, dead(of, what)) for of, what in product(KINDS, PARTS)}
    variants = found["unit", "static"]
    if not variants:
        return None
    marked = reported(gathered, _places(variants))
    printed = within(dynamic_rates(gathered.study), marked)
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
    layers = layers_of_study(gathered.study)
    if layers is None:
        return None

    def of(training: Reported) -> Cost | None:
        unknown = training.cycle > 0 and not training.layers
        return None if unknown else cost(layers, training.layers)

    places: dict[str, Value] = {
        "alive weights": lambda training: None if (at := of(training)) is None else at.weights,
        "multiply-adds for one image": lambda training: None if (at := of(training)) is None else at.multiply_adds,
    }
    found = {name: _by_variant(gathered, lambda training: training.accuracy, x) for name, x in places.items()}
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


def remarks(gathered: Gathered) -> str:
    """How many seeds a mean is of, what a band is, and what is not in it."""
    failed = sum(training.failure is not None for training in gathered.trainings)
    missing = sum(training.missing for training in gathered.trainings)
    seeds = over_seeds(gathered)
    parts = [seeds if seeds == "one seed" else f"{seeds}, band: ± sample standard deviation"]
    parts += [f"{failed} of {len(gathered.trainings)} trainings failed and are left out"] if failed else []
    parts += [f"{missing} of {len(gathered.trainings)} trainings are still missing"] if missing else []
    return "; ".join(parts)


def _by_variant(gathered: Gathered, value: Value, x: Value | None = None) -> dict[str, list[Point]]:
    found = {variant: along_density(gathered, variant, value, x) for variant in gathered.study.variants}
    return {variant: points for variant, points in found.items() if points}


def within(printed: Mapping[str, list[Point]], marked: list[float]) -> dict[str, list[Point]]:
    """Printed points at densities that the run has come to."""
    known = {
        variant: [point for point in points if point.x * NEAR > min(marked)] for variant, points in printed.items()
    }
    return {variant: points for variant, points in known.items() if points}


def aside(marked: Sequence[float], turns: int) -> float:
    """The factor by which each of so many printed points at one density is moved aside of the one before.

    >>> round(aside([1.0, 0.64, 0.08], 3), 3), round(aside([1.0, 0.8, 0.1], 12), 3)
    (0.973, 0.992)
    """
    usual = log(max(max(marked) / min(marked), NARROW)) * BESIDE
    gaps = [log(high / low) for low, high in pairwise(sorted(marked))]
    return exp(-min([usual, *(WITHIN * gap / turns for gap in gaps if turns)]))


def _draw(axes: Axes, found: Mapping[str, list[Point]]) -> None:
    for variant, points in found.items():
        draw_variant(axes, variant, points)


def _draw_published(axes: Axes, printed: Mapping[str, list[Point]], step: float = 1.0) -> None:
    """`step`: the factor by which each variant in its turn is moved aside."""
    for turn, (variant, points) in enumerate(printed.items(), 1):
        draw_published(axes, variant, points, shift=step**turn)


def reported(gathered: Gathered, places: Sequence[float]) -> list[float]:
    """The densities to mark among those where something is drawn; those that differ by less than a rounding are one."""
    marked: list[float] = []
    for density in densities(gathered):
        known = any(isclose(place, density) for place in places)
        if known and not any(isclose(density, other, rel_tol=2e-3) for other in marked):
            marked.append(density)
    return marked


def _places(found: Mapping[str, list[Point]]) -> list[float]:
    return [point.x for points in found.values() for point in points]


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
