"""The layers of a network: a map for one variant, and all variants at one density."""

from __future__ import annotations

from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, LinearColorMapper, LogColorMapper, Range1d
from bokeh.models.annotations import ColorBar
from bokeh.palettes import Cividis256

from ..gathering import Gathered
from ..layers import DENSITY, Cells, layer_names, values_of
from ..wording import per_cent, percent
from .arrays import Arrays
from .plots import LOW, Panel, around_visible, draw_chosen, plain, says, sheet

ROW, AROUND = 15, 90  # pixels: of a layer, and above and below the map
LABELS = 9  # at most, below the map
UNKNOWN = "#88888844"
VARIANT, CYCLE = "map_variant", "map_cycle"  # the choices that these plots follow


def layer_maps(run: Gathered, arrays: Arrays) -> list[Panel]:
    """Each quantity that is known of layers: layers in rows, densities in columns."""
    return [_map(run, arrays, name, cells) for name, cells in _known(run).items()]


def layer_profiles(run: Gathered, arrays: Arrays) -> list[Panel]:
    """Each quantity along the layers at one density."""
    return [_profile(run, arrays, name, cells) for name, cells in _known(run).items()]


def _known(run: Gathered) -> dict[str, Cells]:
    """Of a dense network alone there is nothing to compare."""
    found = run.layer_maps
    return found if any(cycle for cells in found.values() for by in cells.values() for cycle in by) else {}


def _map(run: Gathered, arrays: Arrays, name: str, cells: Cells) -> Panel:
    layers = layer_names(cells)
    cycles = [cycle for cycle in run.cycles if any(cycle in by for by in cells.values())]
    places = [(row, column) for row in range(len(layers)) for column in range(len(cycles))]
    for variant, by in cells.items():
        values = [by.get(cycles[column], {}).get(layers[row]) for row, column in places]
        arrays.add(f"map/{name}", variant, {"value": [None if v is None else 100 * v for v in values]})
    source = ColumnDataSource(
        {
            "x": [column + 0.5 for _, column in places],
            "y": [row + 0.5 for row, _ in places],
            "layer": [layers[row] for row, _ in places],
            "density": [percent(run.density_of(cycles[column])) for _, column in places],
            "value": [float("nan")] * len(places),
        },
        tags=[{"data": f"map/{name}", "by": VARIANT}],
    )
    plot = sheet("density λ (%)", "", ROW * len(layers) + AROUND)
    plot.x_range, plot.y_range = Range1d(start=0, end=len(cycles)), Range1d(start=len(layers), end=0)
    colours = _colours(name, cells)
    cell = plot.rect(
        "x", "y", 1, 1, source=source, fill_color={"field": "value", "transform": colours}, line_color=None
    )
    says(cell, {"layer": "@layer", "λ": "@density", name.removesuffix(" (%)"): "@value{3} %"})
    every = -(-len(cycles) // LABELS)
    _ticks(plot.xaxis, {c + 0.5: per_cent(run.density_of(cycles[c])) for c in range(len(cycles) - 1, -1, -every)})
    _ticks(plot.yaxis, {row + 0.5: layer for row, layer in enumerate(layers)})
    plot.ygrid.visible = False
    plot.add_layout(
        ColorBar(color_mapper=colours, height=8, padding=4, title=None, background_fill_color=None), "above"
    )
    return Panel(name, plot)


def _profile(run: Gathered, arrays: Arrays, name: str, cells: Cells) -> Panel:
    layers = layer_names(cells)
    plot = sheet("layer, from the input on", name, LOW + 30)
    for variant, by in cells.items():
        data, last = f"profile/{name}/{variant}", []
        for cycle, of in by.items():
            last = [float("nan") if layer not in of else 100 * of[layer] for layer in layers]
            arrays.add(data, str(cycle), {"mean": last})
        columns = {"x": [*range(1, len(layers) + 1)], "layer": layers, "mean": last}
        draw_chosen(plot, variant, (data, CYCLE), columns, {"layer": "@layer", name: "@mean{3}"})
    around_visible(plot)
    return Panel(name, plot)


def _colours(name: str, cells: Cells) -> Any:
    """Dark is where most is lost, as in the printed map."""
    values = values_of(cells)
    if name == DENSITY:
        lowest = min(*(value for value in values if value > 0), 50.0)
        return LogColorMapper(palette=Cividis256, low=lowest, high=100.0, nan_color=UNKNOWN)
    highest = max(*values, min(values) + 1e-9)
    return LinearColorMapper(palette=Cividis256[::-1], low=min(values), high=highest, nan_color=UNKNOWN)


def _ticks(axis: Any, labels: dict[float, str]) -> None:
    axis.ticker = FixedTicker(ticks=[*labels], minor_ticks=[])
    axis.major_label_overrides = {place: plain(label) for place, label in labels.items()}
    axis.major_tick_line_color = axis.axis_line_color = None
