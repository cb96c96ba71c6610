"""What runs found as one small file: all that a report is made of, without the store."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from io import BytesIO
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..core.errors import InputError
from ..experiment.findings import how_failed
from ..experiment.imports import asked_for
from ..experiment.plan.reading import parsed, written
from ..experiment.store.files import explained, write_bytes
from .gathering import Gathered
from .trainings import Reported, Work

RECORDS = "records.json.gz"
FORMAT = 2  # the first had sums instead of the work behind them
CELL = ("variant", "cycle", "seed")
NAMES = {"probes": "looks"}  # ours, and what the file has always called them
LARGEST = 200_000_000  # bytes, unfolded: the 300 trainings of table 1 are 6 million

_TRAININGS, _WORK = TypeAdapter(tuple[Reported, ...]), TypeAdapter(tuple[Work, ...])
_TEXTS = TypeAdapter(tuple[str, ...])


def write_records(runs: Sequence[Gathered], folder: Path) -> Path:
    """Writes records.json.gz into a folder and says where it is; the same results give the same bytes."""
    text = json.dumps(
        {"format": FORMAT, "runs": [_as_json(run) for run in runs]}, separators=(",", ":"), allow_nan=False
    )
    path = folder / RECORDS
    write_bytes(path, gzip.compress(text.encode(), mtime=0))
    return path


def read_records(path: Path) -> list[Gathered]:
    """What `write_records` wrote, or anybody else: nothing in it is executed."""
    with explained("file", path):
        content = path.read_bytes()
    try:
        with gzip.open(BytesIO(content)) as unfolding:
            text = unfolding.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise InputError(f"{path} unfolds to more than {LARGEST:,} bytes, which no report writes")
        records = json.loads(text)
        if records["format"] != FORMAT:
            raise InputError(f"{path} has format {records['format']}; this version reads {FORMAT}")
        return [_run(run, str(path)) for run in records["runs"]]
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be read: it is not what a report writes ({reason})") from error


def _as_json(run: Gathered) -> dict[str, Any]:
    """A training that several cells report stands there once."""
    places: dict[str, int] = {}
    cells = []
    for training in run.trainings:
        rest = {key: value for key, value in _fields(training).items() if key not in CELL}
        place = places.setdefault(json.dumps(rest, default=dict), len(places))
        cells.append([training.variant, training.cycle, training.seed, place])
    return {
        "title": run.title,
        "study": written(run.study),
        "cells": cells,
        "trainings": [json.loads(text) for text in places],
        "work": [asdict(training) for training in run.work],
        "machines": list(run.machines),
        "imports": list(run.imports),
    }


def _fields(training: Reported) -> dict[str, Any]:
    """A shortfall only where there is one, which is rare."""
    values = {NAMES.get(field.name, field.name): getattr(training, field.name) for field in fields(training)}
    if not training.shortfall:
        del values["shortfall"]
    return values | {"epochs": _columns(training.epochs)}


def _run(record: Mapping[str, Any], where: str) -> Gathered:
    for training in record["trainings"]:
        if training["failure"] is not None:
            how_failed(training["failure"])  # or what is there instead is an error
    trainings = [
        {
            **training,
            "epochs": _rows(training["epochs"]),
            **{ours: tuple(training[theirs]) for ours, theirs in NAMES.items()},
        }
        for training in record["trainings"]
    ]
    return Gathered(
        title=_TEXTS.validate_python([record["title"]])[0],
        study=parsed(record["study"], where, asked_for()["imports"]),
        trainings=_TRAININGS.validate_python(
            [
                {"variant": variant, "cycle": cycle, "seed": seed, **trainings[place]}
                for variant, cycle, seed, place in record["cells"]
            ]
        ),
        work=_WORK.validate_python(record["work"]),
        machines=_TEXTS.validate_python(record["machines"]),
        imports=_TEXTS.validate_python(record["imports"]),
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows that all have the same keys, by key: shorter than each key in each row.

    >>> _columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _rows(columns: Mapping[str, Sequence[Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
