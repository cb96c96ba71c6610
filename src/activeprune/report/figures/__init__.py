"""Figures of a run, for print and for the screen."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ...core.registry import summary_of
from ...experiment.store.files import write_bytes
from ..gathering import Gathered
from .along_density import accuracy, dead_neurons, size_and_operations
from .along_time import dead_neurons_in_training, learning_curves
from .layer_map import layers
from .style import styled

Format = Literal["svg", "pdf", "png"]

DPI = 180
NO_DATE: dict[Format, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}

FIGURES: dict[str, Callable[[Gathered], Figure | None]] = {
    "accuracy": accuracy,
    "dead-neurons": dead_neurons,
    "dead-neurons-in-training": dead_neurons_in_training,
    "layers": layers,
    "learning-curves": learning_curves,
    "size-and-operations": size_and_operations,
}
"""By name; a figure is None where the run has nothing for it."""


def caption(name: str) -> str:
    """What a figure shows, in one sentence.

    >>> caption("learning-curves")
    'Training loss and validation accuracy by epoch for several densities, a panel for each variant.'
    """
    return summary_of(FIGURES[name])


class Printed:
    """The figures of a run, each drawn once for its files and for the page; of a grid there are too many to keep them,
    so that what the page needs is kept as SVG.
    """

    def __init__(self, run: Gathered) -> None:
        self.run = run
        self._small: dict[str, bytes | None] = {}

    def files(self, name: str) -> dict[Format, bytes]:
        """A figure in every format; none where the run has nothing for it."""
        if (figure := FIGURES[name](self.run)) is None:
            return {}
        files = {form: rendered(figure, form) for form in NO_DATE}
        self._small[name] = _small(figure, files["svg"])
        return files

    def small_svg(self, name: str) -> bytes | None:
        """A figure as SVG, with maps of many cells as pixels; None where the run has nothing for it."""
        if name not in self._small:
            figure = FIGURES[name](self.run)
            self._small[name] = None if figure is None else _small(figure)
        return self._small[name]


def _small(figure: Figure, known: bytes | None = None) -> bytes:
    """`known` is the figure as SVG, which will do where there is no map."""
    maps = [part for axes in figure.axes for part in axes.collections if isinstance(part, QuadMesh)]
    for part in maps:
        part.set_rasterized(True)
    return rendered(figure, "svg") if maps or known is None else known


@styled()
def rendered(figure: Figure, form: Format) -> bytes:
    """A figure as a file: the same bytes for the same figure."""
    _laid_out(figure)
    content = BytesIO()
    figure.savefig(content, format=form, dpi=DPI, metadata=NO_DATE[form])
    return content.getvalue()


def _laid_out(figure: Figure) -> None:
    """Settles where everything stands, once: every drawing would move it a little, and each format by itself.

    Afterwards there is no layout engine; one that does nothing would still have everything drawn twice.
    """
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        for _ in range(2):  # what the first finds out about the size of labels, the second uses
            engine.execute(figure)
        figure.set_layout_engine(None)


def write_figures(printed: Printed, folder: Path) -> list[Path]:
    """Writes NAME.svg, NAME.pdf and NAME.png of every figure that the run has something for; older ones go."""
    written = []
    for name in FIGURES:
        for form, content in printed.files(name).items():
            path = folder / f"{name}.{form}"
            write_bytes(path, content)
            written.append(path)
    for path in {folder / f"{name}.{form}" for name in FIGURES for form in NO_DATE}.difference(written):
        path.unlink(missing_ok=True)
    return written
