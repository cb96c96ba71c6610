"""What runs found as one small file: all that a report is made of, without the store."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..experiment.files import explained, write_bytes
from ..experiment.reading import parsed, written
from .gathering import Gathered, Training, Work

RECORDS = "records.json.gz"
FORMAT = 2  # the first had sums instead of the work behind them
CELL = ("variant", "cycle", "seed")


def write_records(runs: Sequence[Gathered], folder: Path) -> Path:
    """Writes records.json.gz into a folder and says where it is; the same results give the same bytes."""
    text = json.dumps({"format": FORMAT, "runs": [_told(run) for run in runs]}, separators=(",", ":"), allow_nan=False)
    path = folder / RECORDS
    write_bytes(path, gzip.compress(text.encode(), mtime=0))
    return path


def read_records(path: Path) -> list[Gathered]:
    """What `write_records` wrote."""
    with explained("file", path):
        content = path.read_bytes()
    try:
        told = json.loads(gzip.decompress(content))
        if told["format"] != FORMAT:
            raise InputError(f"{path} has format {told['format']}; this version reads {FORMAT}")
        return [_run(run, str(path)) for run in told["runs"]]
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} cannot be read: it is not what a report writes ({error})") from error


def _told(run: Gathered) -> dict[str, Any]:
    """A training that several cells report stands there once."""
    places: dict[str, int] = {}
    cells = []
    for training in run.trainings:
        own = {key: value for key, value in _fields(training).items() if key not in CELL}
        place = places.setdefault(json.dumps(own, default=dict), len(places))
        cells.append([training.variant, training.cycle, training.seed, place])
    return {
        "title": run.title,
        "study": written(run.study),
        "cells": cells,
        "trainings": [json.loads(text) for text in places],
        "work": [asdict(one) for one in run.work],
        "machines": list(run.machines),
        "imports": list(run.imports),
    }


def _fields(training: Training) -> dict[str, Any]:
    own = {field.name: getattr(training, field.name) for field in fields(training)}
    return own | {"epochs": _columns(training.epochs)}


def _run(told: Mapping[str, Any], where: str) -> Gathered:
    trainings = [{**one, "epochs": _rows(one["epochs"]), "looks": tuple(one["looks"])} for one in told["trainings"]]
    return Gathered(
        title=told["title"],
        study=parsed(told["study"], where),
        trainings=tuple(
            Training(variant=variant, cycle=cycle, seed=seed, **trainings[place])
            for variant, cycle, seed, place in told["cells"]
        ),
        work=tuple(Work(**{**one, "variants": tuple(one["variants"])}) for one in told["work"]),
        machines=tuple(told["machines"]),
        imports=tuple(told["imports"]),
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows that all have the same keys, by key: shorter than each key in each row.

    >>> _columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _rows(columns: Mapping[str, Sequence[Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
