"""The paper's points that belong into a study's figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, log

from ..experiment.plan.study import Study
from .published import Published
from .series import Point

BESIDE = 0.011  # of the axis between points at the same density, where there is room
WITHIN = 0.45  # of the way to the next density: no point stands nearer to another one than to its own
NARROW = 1.5  # the least range of densities that this is meant for
NEAR = 1.06  # densities that differ by less are the same: the paper prints 5.72 % for 0.8¹³ = 5.50 %


def points(found: Published | None, study: Study) -> dict[str, list[Point]]:
    """What a table prints of the study's variants.

    >>> from activeprune.experiment.plan.reading import read_study
    >>> from activeprune.report.published import accuracies
    >>> study = read_study("table1")
    >>> points(accuracies(study), study)["ap_pro"][-1]
    Point(x=0.0572, mean=0.841, std=0.011, seeds=5)
    """
    if found is None:
        return {}
    return {
        variant: [Point(round(value.printed / 100, 6), value.mean, value.std, found.runs) for value in cells.values()]
        for variant, cells in found.rows.items()
        if variant in study.variants
    }


def tables_of(found: Published | None, study: Study) -> str:
    """The table that the study's variants stand in, or several.

    >>> from activeprune.experiment.plan.reading import read_study
    >>> from activeprune.report.published import accuracies
    >>> study = read_study("table1")
    >>> tables_of(accuracies(study), study)
    'table 1'
    """
    if found is None:
        return ""
    tables = dict.fromkeys(found.table_of(variant) for variant in found.rows if variant in study.variants)
    return ", ".join(name.replace("table", "table ").partition("_")[0] for name in tables)


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
