"""Tables and JSON on the terminal, in a pipe or in a log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..report import layout

LOG_WIDTH = 120  # columns of a table that goes to a file or a pipe

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def print_json(value: object) -> None:
    """For machines."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


def visible(text: str) -> str:
    r"""A text that a terminal only shows: what would move its cursor, change its title or turn its letters round is
    spelt out.

    >>> visible("λ 5 %: \x1b[2J")
    'λ 5 %: \\x1b[2J'
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def print_table(rows: Iterable[Mapping[str, str | Text]], title: str | None = None) -> None:
    """One row a line, under the names of the first row's columns."""
    rows = list(rows)
    if title is not None:
        print(visible(title))
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else visible(value) for value in row.values()))
    print_rich(table)


def show_table(table: layout.Table) -> None:
    """A table of a report, and its notes."""
    rows = [dict(zip(table.head, map(_styled, row), strict=True)) for row in table.rows]
    print_table(rows, title=table.title)
    for note in table.notes:
        if sys.stdout.isatty() or not note.startswith(layout.BOLD):  # a pipe knows no bold
            print(f"  {visible(note)}")


def _styled(cell: layout.Cell) -> Text:
    return Text.assemble(*((visible(piece.text), "bold" if piece.bold else "") for piece in cell))


def print_rich(thing: RenderableType) -> None:
    """As wide as the terminal, or as a log."""
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH).print(thing)
