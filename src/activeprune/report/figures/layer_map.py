"""Where a network is pruned and where its neurons die: a map of layers against densities."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from ..gathering import Gathered
from ..layers import DENSITY, DYNAMIC, STATIC, Cells, layer_names, values_of
from ..series import over_seeds
from ..wording import per_cent
from .style import CROWDED, DOUBLE, FAINT, SINGLE, SMALL, log_ticks, note, sheet, styled, title

TALLEST, HIGHEST_CELL, LINE = 6.6, 0.12, 0.095  # inches: all maps together, a cell, a line of small type
CHARACTER, BAR = 0.055, 0.6  # inches: of a layer's name, and the scale of colours
THIN, CELL_WITH_LINES = 0.25, 0.07  # points: lines between cells; inches: smaller cells have none
COLUMN_EVERY = 0.25  # inches between the middles of two labels
GAP, MARGIN = 0.12, 0.85  # inches: between two maps, and around all
SCALES = {DENSITY: "cividis", DYNAMIC: "cividis_r", STATIC: "cividis_r"}  # dark is where most is lost


@styled()
def layers(gathered: Gathered) -> Figure | None:
    """Density and dead-neuron rates (units) of every layer against density, a column for each variant."""
    found = gathered.layer_maps
    variants = [v for v in gathered.study.variants if any(v in cells for cells in found.values())]
    cycles = [c for c in gathered.cycles if any(c in by for cells in found.values() for by in cells.values())]
    if not any(cycles):
        return None  # of a dense network alone there is nothing to compare
    quantities = [_Quantity(name, cells) for name, cells in found.items()]
    heights = [len(quantity.layers) for quantity in quantities]
    cell = min(TALLEST / sum(heights), HIGHEST_CELL)
    width = DOUBLE if len(variants) > 1 else SINGLE
    longest = max(len(name) for quantity in quantities for name in quantity.layers)
    panel = (width - BAR - CHARACTER * longest) / len(variants) - GAP
    line = THIN if min(panel / len(cycles), cell) > CELL_WITH_LINES else 0.0
    size = (width, cell * sum(heights) + GAP * len(found) + MARGIN)
    figure, panels = sheet(*size, len(found), len(variants), sharex="col", sharey="row", height_ratios=heights)
    for row, quantity in enumerate(quantities):
        of_row = panels[row * len(variants) : (row + 1) * len(variants)]
        for variant, axes in zip(variants, of_row, strict=True):
            quantity.draw(axes, variant, cycles, line)
        _rows(of_row[0], quantity.layers, cell)
        _bar(figure, of_row, quantity.name)
    for variant, top, bottom in zip(variants, panels, panels[-len(variants) :], strict=False):
        title(top, variant, len(variants))
        _columns(bottom, gathered, variant, cycles, panel)
        bottom.set_xlabel("density λ (%)" if len(variants) <= CROWDED else "λ (%)")
    none_static = "" if STATIC in found or DYNAMIC not in found else "; no neuron is statically dead"
    note(figure, over_seeds(gathered) + none_static)
    return figure


@dataclass(frozen=True)
class _Quantity:
    """What is known of every layer: a row of maps, one a variant, that share layers and colours."""

    name: str
    cells: Cells

    @property
    def layers(self) -> list[str]:
        return layer_names(self.cells)

    @property
    def norm(self) -> Normalize:
        values = values_of(self.cells)
        if self.name != DENSITY:
            return Normalize(min(values), max(*values, min(values) + 1e-9))
        return LogNorm(min(*(value for value in values if value > 0), 50.0), 100.0, clip=True)

    def draw(self, axes: Axes, variant: str, cycles: list[int], line: float) -> None:
        """The map of a variant; `line` points between its cells."""
        by, layers = self.cells.get(variant, {}), self.layers
        values = np.array([[100 * by.get(cycle, {}).get(name, np.nan) for cycle in cycles] for name in layers])
        axes.pcolormesh(
            np.ma.masked_invalid(values),
            cmap=SCALES[self.name],
            norm=self.norm,
            edgecolors="white" if line else "face",
            linewidth=line,
        )
        axes.grid(False)
        axes.set_facecolor(FAINT)
        axes.set_ylim(len(layers), 0)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)


def _columns(axes: Axes, gathered: Gathered, variant: str, cycles: list[int], inches: float) -> None:
    every = ceil(COLUMN_EVERY * len(cycles) / inches)
    marked = [place for place in range(len(cycles)) if (len(cycles) - 1 - place) % every == 0]
    known = [gathered.density(variant, cycles[place]) for place in marked]
    axes.set_xticks([place + 0.5 for place in marked], ["" if d is None else per_cent(d) for d in known])


def _rows(axes: Axes, layers: list[str], cell: float) -> None:
    every = ceil(LINE / cell)
    marked = range(0, len(layers), every)
    axes.set_yticks(
        [place + 0.5 for place in marked], [layers[place] for place in marked], fontsize=min(SMALL, 72 * cell * every)
    )


def _bar(figure: Figure, axes: list[Axes], name: str) -> None:
    bar = figure.colorbar(axes[0].collections[0], ax=axes, label=name, pad=0.01, aspect=30, fraction=0.05)
    if isinstance(bar.norm, LogNorm):
        log_ticks(bar.ax.yaxis)
    bar.outline.set_visible(False)
