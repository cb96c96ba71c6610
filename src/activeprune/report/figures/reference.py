"""The paper's points that belong into a study's figures."""

from __future__ import annotations

from ...experiment.study import Study
from .. import published
from .series import Point


def accuracies(study: Study) -> tuple[str, dict[str, list[Point]]]:
    """The table that the study is compared with, or several, and its points by variant.

    >>> from activeprune.experiment.reading import read_study
    >>> name, points = accuracies(read_study("table1"))
    >>> name, points["ap_pro"][-1]
    ('table 1', Point(x=0.0572, mean=0.841, std=0.011, seeds=5))
    """
    found = published.accuracies(study)
    if found is None:
        return "", {}
    points = _points(found, study)
    tables = dict.fromkeys(found.table_of(variant) for variant in points)
    return ", ".join(name.replace("table", "table ").partition("_")[0] for name in tables), points


def dynamic_rates(study: Study) -> dict[str, list[Point]]:
    """The dynamic dead-neuron rates of the same network, data and method, by variant."""
    found = published.dead_rates(study)
    return {} if found is None else _points(found, study)


def _points(found: published.Published, study: Study) -> dict[str, list[Point]]:
    return {
        variant: [Point(round(value.printed / 100, 6), value.mean, value.std, found.runs) for value in cells.values()]
        for variant, cells in found.rows.items()
        if variant in study.variants
    }
