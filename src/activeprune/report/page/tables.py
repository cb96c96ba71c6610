"""Tables as the page shows them: numbers that lead to what they rest on, and plain numbers for programs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..cells import record
from ..figures.style import VARIANTS
from ..gathering import Gathered
from ..layout import Piece, Section, Source, Table, plain
from .provenance import cell_name

NUMBER = re.compile(r"^[(<]? ?[+−]?\d|^–$|^missing$|^failed$")
SHORT = 28  # characters of a number with all that belongs to it


@dataclass(frozen=True)
class Shown:
    """A cell: its text, where it leads and where its other part does, by name, and the numbers behind it."""

    pieces: tuple[Piece, ...]
    link: str | None = None
    others: tuple[tuple[str, str], ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ShownTable:
    """A table under its caption; `numeric` says which columns are set flush right."""

    name: str
    caption: str
    head: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Shown, ...], ...]
    notes: tuple[str, ...]


def shown(table: Table) -> ShownTable:
    """A table without links."""
    return _shown(table, tuple(tuple(Shown(cell) for cell in row) for row in table.rows))


def of_run(section: Section, run: Gathered, number: int) -> list[ShownTable]:
    """The tables of a run; numbers lead to the trainings that they rest on."""
    return [_shown(table, tuple(_rows(table, run, number)), f"{run.title}: ") for table in section.tables]


def _rows(table: Table, run: Gathered, number: int) -> list[tuple[Shown, ...]]:
    rows = [[Shown(cell) for cell in row] for row in table.rows]
    for (row, column), sources in table.sources.items():
        first, *others = sources
        rows[row][column] = Shown(
            table.rows[row][column],
            f"#{cell_name(number, *first)}",
            tuple((VARIANTS[variant].label, f"#{cell_name(number, variant, cycle)}") for variant, cycle in others),
            _numbers(run, first) if table.name == "accuracy" else (),
        )
    return [tuple(row) for row in rows]


def _numbers(run: Gathered, of: Source) -> tuple[tuple[str, str], ...]:
    told = record(run, *of, None)
    known = {name: told[name] for name in ("variant", "cycle", "seeds", "mean", "std") if told[name] is not None}
    return tuple((name, repr(value) if isinstance(value, float) else str(value)) for name, value in known.items())


def _shown(table: Table, rows: tuple[tuple[Shown, ...], ...], prefix: str = "") -> ShownTable:
    texts = [[plain(cell) for cell in column] for column in zip(*table.rows, strict=True)] or [[] for _ in table.head]
    numeric = tuple(bool(column) and all(NUMBER.match(text) and len(text) <= SHORT for text in column)
                    for column in texts)  # fmt: skip
    return ShownTable(table.name, table.title.removeprefix(prefix), table.head, numeric, rows, table.notes)
