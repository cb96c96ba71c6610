"""What happens while the networks are trained: dead neurons and learning curves for several densities."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..gathering import Gathered
from ..series import (
    TRAINING_LOSS,
    VALIDATION_ACCURACY,
    Point,
    Track,
    Tracked,
    along_time,
    dynamic_rate,
    remarks,
    some_of,
)
from ..wording import per_cent
from .style import DOUBLE, SHORT_ENTRY, SINGLE, above, draw, log_ticks, note, shades, sheet, styled, title

START = 0.1  # of a training: what rises steeply there would leave no room for the rest
FROM_BELOW = (VALIDATION_ACCURACY,)
MOST = 5  # densities in one figure
Lines = dict[str, dict[int, list[Point]]]  # by variant and cycle


@styled()
def dead_neurons_in_training(gathered: Gathered) -> Figure | None:
    """Dynamic dead-neuron rate (units) during training for several densities, a panel for each variant."""
    return _panels(gathered, [dynamic_rate("unit")])


@styled()
def learning_curves(gathered: Gathered) -> Figure | None:
    """Training loss and validation accuracy by epoch for several densities, a panel for each variant."""
    return _panels(gathered, [TRAINING_LOSS, VALIDATION_ACCURACY])


def _panels(gathered: Gathered, rows: Sequence[Tracked]) -> Figure | None:
    """A row of panels for each quantity, a column for each variant."""
    found = {quantity: _lines(gathered, quantity.track) for quantity in rows}
    variants = [v for v in gathered.study.variants if any(lines.get(v) for lines in found.values())]
    known = sorted({cycle for lines in found.values() for of in lines.values() for cycle in of})
    if not known:
        return None
    cycles = some_of(known, MOST)
    looks = dict(zip(cycles, shades(len(cycles)), strict=True))
    wide = len(variants) > 1
    figure, panels = sheet(
        DOUBLE if wide else SINGLE, 0.9 + 1.7 * len(rows), len(rows), len(variants), sharex=True, sharey="row"
    )
    places = ((row, column) for row in range(len(rows)) for column in range(len(variants)))
    for (row, column), axes in zip(places, panels, strict=True):
        quantity, variant = rows[row], variants[column]
        for cycle in cycles:
            draw(axes, found[quantity].get(variant, {}).get(cycle, []), quantity.scale, **looks[cycle])
        if quantity.logarithmic:
            axes.set_yscale("log")
            log_ticks(axes.yaxis)
        if row == 0:
            title(axes, variant, len(variants))
        if row == len(rows) - 1:
            axes.set_xlabel("epoch")
        if column == 0:
            axes.set_ylabel(quantity.name)
    for row, quantity in enumerate(rows):
        if quantity in FROM_BELOW:
            panels[row * len(variants)].set_ylim(bottom=quantity.scale * _settled(found[quantity]))
    above(figure, [Line2D([], [], **looks[cycle], label=_label(gathered, cycle)) for cycle in cycles], SHORT_ENTRY)
    note(figure, remarks(gathered))
    return figure


def _lines(gathered: Gathered, track: Track) -> Lines:
    cells = {
        v: {c: along_time(gathered.of(v, c).values(), track) for c in gathered.cycles} for v in gathered.study.variants
    }
    return {variant: {c: points for c, points in of.items() if points} for variant, of in cells.items()}


def _settled(lines: Lines) -> float:
    """The lowest value once the first steep part of the trainings is over."""
    points = [point for of in lines.values() for line in of.values() for point in line]
    first = START * max(point.x for point in points)
    return min(point.low for point in points if point.x >= first)


def _label(gathered: Gathered, cycle: int) -> str:
    return f"λ = {per_cent(gathered.density_of(cycle))} %"
