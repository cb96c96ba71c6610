"""What happens while the networks are trained, for one density at a time."""

from __future__ import annotations

from typing import Any

from ...experiment.findings import GRANULARITIES
from ..gathering import Gathered
from ..series import TRAINING_LOSS, VALIDATION_ACCURACY, Tracked, along_time, dynamic_rate, some_of
from .arrays import Arrays
from .plots import LOW, Panel, around_visible, draw_chosen, log_ticks, sheet

MOST_POINTS = 100  # of a curve
CYCLE = "cycle"  # the choice that these curves follow


def learning_curves(run: Gathered, arrays: Arrays) -> list[Panel]:
    """Training loss and validation accuracy by epoch."""
    return [panel for quantity in (TRAINING_LOSS, VALIDATION_ACCURACY) for panel in _curves(run, arrays, quantity)]


def dead_neurons_in_training(run: Gathered, arrays: Arrays) -> list[Panel]:
    """Dynamic rates by epoch."""
    return [panel for of in GRANULARITIES for panel in _curves(run, arrays, dynamic_rate(of))]


def _curves(run: Gathered, arrays: Arrays, quantity: Tracked) -> list[Panel]:
    name, scale = quantity.name, quantity.scale
    plot = sheet("epoch", name, LOW + 30, y_axis_type="log" if quantity.logarithmic else "linear")
    known = False
    for variant in run.study.variants:
        data = f"{name}/{variant}"
        last: dict[str, list[Any]] = {}
        for cycle in run.cycles:
            if points := some_of(along_time(run.of(variant, cycle).values(), quantity.track), MOST_POINTS):
                last = {
                    "x": [point.x for point in points],
                    "mean": [scale * point.mean for point in points],
                    "std": [None if point.std is None else scale * point.std for point in points],
                    "seeds": [point.seeds for point in points],
                }
                arrays.add(data, str(cycle), last)
        if last:
            known = True
            ends = {column: [of[0], of[-1]] for column, of in last.items()}  # the page puts in what is between
            ends["said"] = ["", ""]
            draw_chosen(plot, variant, (data, CYCLE), ends, {"epoch": "@x", name: "@said"})
    if quantity.logarithmic:
        log_ticks(plot.yaxis)
    around_visible(plot)
    return [Panel("", plot)] if known else []
