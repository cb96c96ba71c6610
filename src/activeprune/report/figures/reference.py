"""The paper's points that belong into a study's figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...experiment.study import Study
from ..paper import published
from .series import Point

DATA = {"imagefolder": "imagenet"}  # names here and in the paper
PRINTED = {"vit_b16_384": ("vit_b16", 384)}  # a network that is printed together with its resolution


def accuracies(study: Study) -> tuple[str, dict[str, list[Point]]]:
    """The table of the same network, data and method that shares most variants, and its points by variant.

    >>> from activeprune.experiment.reading import read_study
    >>> name, points = accuracies(read_study("table1"))
    >>> name, points["ap_pro"][-1]
    ('table 1', Point(x=0.0572, mean=0.841, std=0.011))
    """
    best: tuple[str, dict[str, list[Point]]] = ("", {})
    for name, table in _tables(study):
        if table.get("method") == study.method.name and "q" not in _first(table):
            shared = {v: [_point(cell) for cell in row] for v, row in _rows(table, study).items()}
            if len(shared) > len(best[1]):
                best = (name, shared)
    return best


def dynamic_rates(study: Study) -> dict[str, list[Point]]:
    """The dynamic dead-neuron rates of the same network, data and method, by variant."""
    for _, table in _tables(study):
        if str(table.get("metric", "")).startswith("dynamic DNR") and study.method.name in table["rows"]:
            rows = {"plain" if v == study.method.name else v: row for v, row in _rows(table, study).items()}
            return {v: [Point(float(x) / 100, y / 100, None) for x, y in row.items()] for v, row in rows.items()}
    return {}


def _tables(study: Study) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of those with the study's network and data."""
    data = study.training.data.name
    for name, table in published().items():
        if isinstance(table, dict) and "rows" in table:
            network, resolution = PRINTED.get(table["network"], (table["network"], study.training.resolution))
            wanted = (network, resolution, table["dataset"])
            if wanted == (study.training.network.name, study.training.resolution, DATA.get(data, data)):
                yield name.replace("table", "table ").partition("_")[0], table


def _rows(table: dict[str, Any], study: Study) -> dict[str, Any]:
    """Rows by our names, of variants that the study has."""
    ours = {published()["names"].get(name, name): row for name, row in table["rows"].items()}
    return {name: row for name, row in ours.items() if name in (*study.variants, study.method.name)}


def _first(table: dict[str, Any]) -> Any:
    row = next(iter(table["rows"].values()))
    return row[0] if isinstance(row, list) else row


def _point(cell: dict[str, float]) -> Point:
    return Point(*(round(cell[name] / 100, 6) for name in ("lambda", "mean", "std")))
