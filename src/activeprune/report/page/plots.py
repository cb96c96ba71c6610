"""One plot of the page: its axes, its variants, and what its switches need to know of each part.

Every part that a switch shows or hides has tags: first what must be chosen for it to be seen, then how it is coloured,
then what is said of its points (`says`).
A source whose numbers depend on a choice says under which name the page has them (`Arrays`), and whose choice it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bokeh.core.types import ID
from bokeh.embed import json_item
from bokeh.models import ColumnDataSource, FixedTicker, LogTicker, PlainText, Range1d
from bokeh.plotting import figure

from ...experiment.findings import Spread
from ..looks import LOOKS
from ..series import Point, Spot, density_labels, density_margin
from ..wording import counted, percent, printed
from .swatches import SCHEMES, dashes, marker

HEIGHT, LOW = 330, 250  # pixels
MARK, SEED = 8, 6
BAND = 0.13  # opacity
LABELS = 0.055  # least distance of two labels on the axis of densities, as a share of it


@dataclass(frozen=True)
class Panel:
    """A plot under a title."""

    title: str
    plot: Any


def sheet(x: str, y: str, height: int = HEIGHT, **options: Any) -> Any:
    """An empty plot as wide as there is room, in the page's colours: those are put in by its script."""
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        min_width=200,
        tools="box_zoom,reset",
        active_drag=None,  # a finger scrolls the page
        toolbar_location="right",
        x_axis_label=x,
        y_axis_label=y,
        output_backend="canvas",
        **options,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.xgrid.visible = False
    plot.background_fill_color = plot.border_fill_color = plot.outline_line_color = None
    for axis in plot.axis:
        axis.axis_label_text_font_style = "normal"
        axis.minor_tick_line_color = None
    return plot


def density_axis(plot: Any, densities: Sequence[float], beside: float = 1.0) -> None:
    """From dense to sparse, a tick at each density, labels where there is room; `beside` the last may be points."""
    margin = density_margin(densities)
    plot.x_range = Range1d(start=max(densities) * margin, end=min(densities) * beside / margin)
    plot.xaxis.ticker = FixedTicker(ticks=sorted(densities), minor_ticks=[])
    plot.xaxis.major_label_overrides = dict(zip(densities, density_labels(densities, LABELS), strict=True))


def log_ticks(axis: Any) -> None:
    """At 1, 2 and 5 of each decade."""
    axis.ticker = LogTicker(mantissas=[1, 2, 5], num_minor_ticks=0)


def around_visible(plot: Any) -> None:
    """Its axes are as long as what is switched on needs; the page's script lets go of that where nothing is."""
    for axis in (plot.x_range, plot.y_range):
        axis.only_visible, axis.tags = True, [{"around": "visible"}]


def draw_variant(plot: Any, variant: str, found: Sequence[Spot]) -> None:
    """Means with markers, their band, and the points of each seed, which are off until asked for."""
    if not found:
        return
    means = ColumnDataSource(_rounded(_means(found)))
    seen = {"variant": variant}
    _band(plot, means, variant)
    _line(plot, means, variant)
    marks = plot.scatter("x", "mean", source=means, size=MARK, marker=marker(variant), line_color=None)
    _tagged(marks, seen, variant)
    says(marks, {"": LOOKS[variant].label, "λ": "@density", "mean": "@said", "seeds": "@seeds"})
    points = {
        "x": np.array([spot.x for spot in found for _ in spot.values], "f4"),
        "y": np.array([100 * value for spot in found for value in spot.values.values()], "f4"),
        "density": np.array([100 * spot.density for spot in found for _ in spot.values], "f4"),
        "seed": [seed for spot in found for seed in spot.values],
    }
    each = plot.scatter(
        "x", "y", source=ColumnDataSource(points), size=SEED, marker="circle", fill_alpha=0.35, line_alpha=0.8,
        visible=False,
    )  # fmt: skip
    _tagged(each, {**seen, "show": "seeds"}, variant)
    says(each, {"": LOOKS[variant].label, "λ": "@density{2} %", "seed": "@seed", "value": "@y{3} %"})


def draw_published(plot: Any, variant: str, points: Sequence[Point], shift: float = 1.0) -> None:
    """The paper's points: hollow, with error bars where it prints a deviation; `shift` moves them along x."""
    source = ColumnDataSource(
        {
            "x": [point.x * shift for point in points],
            "mean": [100 * point.mean for point in points],
            "low": [100 * point.low for point in points],
            "high": [100 * point.high for point in points],
            "density": [percent(point.x) for point in points],
            "said": [printed(Spread(point.mean, point.std, point.seeds)) for point in points],
        }
    )
    tags: list[Any] = [{"variant": variant, "show": "paper"}, {"colour": variant, "hollow": True}]
    colour = SCHEMES["light"][variant]
    bars = plot.segment("x", "low", "x", "high", source=source, line_color=colour)  # axes make room for a glyph
    bars.tags = tags
    marks = plot.scatter(
        "x", "mean", source=source, size=MARK, marker=marker(variant), fill_color="white", line_color=colour
    )
    marks.tags = tags
    says(marks, {"": f"{LOOKS[variant].label}, the paper", "λ": "@density", "mean": "@said"})


def draw_chosen(
    plot: Any, variant: str, data: tuple[str, str], columns: Mapping[str, Sequence[Any]], texts: Mapping[str, str]
) -> None:
    """A line, and its band where there are deviations, whose numbers the page changes.

    `data` are the name that it has them under, and whose choice they follow; `columns` are those to begin with.
    """
    source = ColumnDataSource(_rounded({**columns, **_ends(columns)}), tags=[{"data": data[0], "by": data[1]}])
    if "std" in columns:
        _band(plot, source, variant)
    line = _line(plot, source, variant)
    says(line, {"": LOOKS[variant].label, **texts})


def _ends(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[float]]:
    if "std" not in columns:
        return {}
    points = [Point(0.0, *pair) for pair in zip(columns["mean"], columns["std"], strict=True)]
    return {"low": [point.low for point in points], "high": [point.high for point in points]}


def says(renderer: Any, texts: Mapping[str, str]) -> None:
    """What the page's script says of a point under the mouse or a finger, by name.

    `@column` is the point's value in that column of its source, `@column{3}` the same with three digits.
    """
    renderer.tags = [*renderer.tags, {"says": [*texts.items()]}]


def plain(text: str) -> PlainText:
    """Text that Bokeh does not take for a formula: for that it would ask the network."""
    return PlainText(text=text)


def embedded(panel: Panel, target: str) -> dict[str, Any]:
    """A plot as the page's script takes it, with the same ids every time."""
    item: Any = json_item(panel.plot, ID(target))
    ids: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return f'"{found[1]}": "{ids.setdefault(found[2], f"p{len(ids)}")}"'

    model = {key: item[key] for key in ("target_id", "root_id", "doc", "version")}
    plot: dict[str, Any] = json.loads(re.sub(r'"(id|root_id)": "(p\d+)"', numbered, json.dumps(model)))
    return plot


def _rounded(columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Seven digits of a number: more than a screen has pixels, fewer than JSON would write."""
    return {
        name: [float(f"{value:.7g}") if isinstance(value, float) else value for value in of]
        for name, of in columns.items()
    }


def _means(found: Sequence[Spot]) -> dict[str, list[Any]]:
    spreads = [spot.spread for spot in found]
    means = [100 * (spread.mean or 0.0) for spread in spreads]
    stds = [100 * (spread.std or 0.0) for spread in spreads]
    return {
        "x": [spot.x for spot in found],
        "mean": means,
        **_ends({"mean": means, "std": stds}),
        "density": [f"{percent(spot.density)} (cycle {spot.cycle})" for spot in found],
        "said": [
            f"{mean:.3f}{'' if spread.std is None else f' ± {std:.3f}'} % ({counted(spread.seeds, 'seed')})"
            for mean, std, spread in zip(means, stds, spreads, strict=True)
        ],
        "seeds": [", ".join(f"{seed}: {100 * value:.3f}" for seed, value in spot.values.items()) for spot in found],
    }


def _band(plot: Any, source: ColumnDataSource, variant: str) -> None:
    band = plot.varea("x", "low", "high", source=source, fill_alpha=BAND, level="underlay")
    _tagged(band, {"variant": variant, "show": "band"}, variant)


def _line(plot: Any, source: ColumnDataSource, variant: str) -> Any:
    line = plot.line("x", "mean", source=source, line_width=2, line_dash=dashes(LOOKS[variant].line))
    _tagged(line, {"variant": variant}, variant)
    return line


def _tagged(renderer: Any, seen: Mapping[str, str], variant: str) -> None:
    """When it is seen, and in whose colour; given to Bokeh at once these tags would be those of its glyph alone."""
    renderer.tags = [seen, {"colour": variant}]
    for name in ("fill_color", "line_color"):
        if getattr(renderer.glyph, name, None) is not None:
            setattr(renderer.glyph, name, SCHEMES["light"][variant])
