"""Tables as the page shows them: cells that may be links, and plain numbers for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..cells import columns, record
from ..gathering import Gathered
from ..layout import Cell, Piece, Section, Table, plain
from ..tables import KINDS
from .provenance import cell_name

NUMBER = re.compile(r"^[(<]? ?[+−]?\d|^–$|^missing$|^failed$")
SHORT = 28  # characters of a number with all that belongs to it


@dataclass(frozen=True)
class Shown:
    """A cell: its text, where it leads, and the numbers behind it."""

    pieces: tuple[Piece, ...]
    link: str | None = None
    numbers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ShownTable:
    """A table under its caption; `numeric` says which columns are set flush right."""

    caption: str
    head: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[Shown, ...], ...]
    notes: tuple[str, ...]


def shown(table: Table, prefix: str = "") -> ShownTable:
    """A table without links; `prefix` is what its title need not repeat."""
    return _shown(table, tuple(tuple(Shown(cell) for cell in row) for row in table.rows), prefix)


def of_run(section: Section, run: Gathered, number: int) -> list[ShownTable]:
    """The tables of a run; accuracies and dead-neuron rates lead to the trainings that they are of."""
    accuracies, *others = section.tables
    prefix = f"{run.title}: "
    made = [_shown(accuracies, tuple(_linked(accuracies, run, number)), prefix)]
    for table in others:
        dead = len(table.records) > 0 and f"{KINDS[0][0]}_{KINDS[0][1]}" in table.records[0]
        made.append(_shown(table, tuple(_by_record(table, number)), prefix) if dead else shown(table, prefix))
    return made


def _linked(table: Table, run: Gathered, number: int) -> Iterator[tuple[Shown, ...]]:
    cycles = [*columns(run)]
    for variant, row in zip(run.study.variants, table.rows, strict=True):
        cells = (_accuracy(run, variant, cycle, of, number) for cycle, of in zip(cycles, row[1:], strict=True))
        yield (Shown(row[0]), *cells)


def _accuracy(run: Gathered, variant: str, cycle: int, of: Cell, number: int) -> Shown:
    told = record(run, variant, cycle, None)
    numbers = {"variant": variant, "cycle": cycle, "seeds": told["seeds"], "mean": told["mean"], "std": told["std"]}
    known = tuple((name, repr(value) if isinstance(value, float) else str(value)) for name, value in numbers.items()
                  if value is not None)  # fmt: skip
    return Shown(of, f"#{cell_name(number, variant, cycle)}", known)


def _by_record(table: Table, number: int) -> Iterator[tuple[Shown, ...]]:
    """Rows of which each belongs to a cell: its λ is the link."""
    for one, row in zip(table.records, table.rows, strict=True):
        link = f"#{cell_name(number, one['variant'], one['cycle'])}"
        yield (Shown(row[0]), Shown(row[1], link), *map(Shown, row[2:]))


def _shown(table: Table, rows: tuple[tuple[Shown, ...], ...], prefix: str) -> ShownTable:
    texts = [[plain(cell) for cell in column] for column in zip(*table.rows, strict=True)] or [[] for _ in table.head]
    numeric = tuple(bool(column) and all(NUMBER.match(text) and len(text) <= SHORT for text in column)
                    for column in texts)  # fmt: skip
    return ShownTable(table.title.removeprefix(prefix), table.head, numeric, rows, table.notes)
