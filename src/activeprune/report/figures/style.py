"""How all figures look: sizes, type, colours, and the axis of densities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from threading import RLock
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..looks import LOOKS
from ..series import DENSITY_AXIS, Point, density_labels, density_margin

SINGLE, DOUBLE = 3.4, 7.0  # inches: the width of one column of a printed page, and of two
SMALL, NORMAL = 6.5, 7.5  # points
GREY, FAINT = "#555555", "#dddddd"
BAND, EDGE = 0.13, 0.45  # opacity
LABEL_EVERY = 0.2  # inches between the middles of two labels of an axis
LEGEND_ENTRY, SHORT_ENTRY = 1.15, 0.95  # inches
CROWDED = 4  # columns of panels
CHARACTERS = 20  # of small type, in an inch
SHADES = "cividis"  # dark to light, in order for every kind of sight

DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (4, 1, 1, 1)), (0, (2.5, 1)), (0, (1, 1)))

STYLE: dict[str, Any] = {
    "text.parse_math": False,  # names of layers are no formulas
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a figure is the same everywhere
    "font.size": NORMAL,
    "axes.titlesize": NORMAL,
    "axes.labelsize": NORMAL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.8,
    "pdf.fonttype": 42,  # text stays text
    "svg.hashsalt": "activeprune",  # ids that are the same every time
}


_ONE_AT_A_TIME = RLock()  # matplotlib's settings are those of the whole process


@contextmanager
def styled() -> Iterator[None]:
    """With these settings and matplotlib's own defaults, whatever the user's are; afterwards those are back."""
    with _ONE_AT_A_TIME, matplotlib.style.context(["default", STYLE]):
        yield


def sheet(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [*figure.subplots(rows, columns, squeeze=False, **options).flat]


def density_axis(axes: Axes, densities: Sequence[float], inches: float, name: bool = True) -> None:
    """λ along x on a log scale from dense to sparse, in per cent; `inches` is about how wide the axes are.

    To be called when all is drawn: what stands beside the last density is still within the limits.
    """
    margin = density_margin(densities)
    axes.set_xscale("log")
    axes.set_xlim(max(densities) * margin, min(*densities, axes.dataLim.x0) / margin)
    axes.xaxis.set_major_locator(FixedLocator([*densities]))
    axes.xaxis.set_major_formatter(FixedFormatter(density_labels(densities, LABEL_EVERY, inches)))
    axes.xaxis.set_minor_locator(NullLocator())
    if name:
        axes.set_xlabel(DENSITY_AXIS)


def log_ticks(axis: Axis) -> None:
    """Of a log axis that spans a few decades at most."""
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def draw(axes: Axes, points: Sequence[Point], scale: float, **look: Any) -> None:
    """Means as a line with markers, and their standard deviations as a band."""
    if not points:
        return
    xs = [point.x for point in points]
    (line,) = axes.plot(xs, [scale * point.mean for point in points], **look)
    low, high = ([scale * end for end in ends] for ends in zip(*((p.low, p.high) for p in points), strict=True))
    if any(point.std for point in points):
        colour = line.get_color()
        axes.fill_between(
            xs, low, high, facecolor=to_rgba(colour, BAND), edgecolor=to_rgba(colour, EDGE), linewidth=0.4
        )


def draw_variant(axes: Axes, variant: str, points: Sequence[Point]) -> None:
    """A variant's points in its own colour."""
    look = LOOKS[variant]
    draw(axes, points, 100, color=look.colour, marker=look.marker, linestyle=look.line, markeredgewidth=0, zorder=3)


def draw_published(axes: Axes, variant: str, points: Sequence[Point], shift: float = 1.0) -> None:
    """The paper's points as hollow markers with error bars; `shift` moves them along x, so that bars stand apart."""
    look = LOOKS[variant]
    axes.errorbar(
        [point.x * shift for point in points],
        [100 * point.mean for point in points],
        yerr=None if any(point.std is None for point in points) else [100 * (point.std or 0.0) for point in points],
        linestyle="none",
        color=look.colour,
        marker=look.marker,
        markerfacecolor="white",
        markeredgewidth=0.7,
        elinewidth=0.6,
        zorder=4,
    )


def legend(figure: Figure, variants: Iterable[str], published: str = "") -> None:
    """Above the axes, where no data are."""
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, markeredgewidth=0, label=look.label)
        for look in map(LOOKS.__getitem__, variants)
    ]
    if published:
        hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 0.7, "linestyle": "none"}
        handles.append(Line2D([], [], color=GREY, marker="o", label=published, **hollow))
    above(figure, handles)


def above(figure: Figure, handles: Sequence[Line2D], entry: float = LEGEND_ENTRY) -> None:
    """A legend over the axes, in as many rows as its width needs."""
    columns = min(len(handles), int(figure.get_figwidth() / entry))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        handlelength=2.6,
        columnspacing=1.4,
    )


def title(axes: Axes, variant: str, columns: int) -> None:
    """The variant that a column of panels belongs to, in two lines where there are many columns."""
    axes.set_title(LOOKS[variant].label.replace(", ", ",\n" if columns > CROWDED else ", "))


def note(figure: Figure, text: str) -> None:
    """What a reader must know, in small type under the axes."""
    lines = wrap(text, int(CHARACTERS * figure.get_figwidth()))
    figure.supxlabel("\n".join(lines), fontsize=SMALL - 0.5, color=GREY, x=0.01, ha="left")


def shades(count: int) -> list[dict[str, Any]]:
    """So many lines in order, from dark to light, none too light for white paper, each with dashes of its own."""
    scale = matplotlib.colormaps[SHADES]
    places = [0.8 * place / max(count - 1, 1) for place in range(count)]
    return [{"color": to_hex(scale(at)), "linestyle": DASHES[i % len(DASHES)]} for i, at in enumerate(places)]
