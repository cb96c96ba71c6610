"""Tables and JSON on the terminal, in a pipe or in a log."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..report import layout

LOG_WIDTH = 120  # columns of a table that goes to a file or a pipe
GAP = 2  # between two columns

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
    """One row a line, under the names of the first row's columns; of too many columns, some below the others."""
    texts = [{name: _as_text(value) for name, value in row.items()} for row in rows]
    if title is not None:
        print(visible(title))
    for columns in _blocks(texts, _console().width):
        table = Table(box=None, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in texts:
            table.add_row(*(row[column] for column in columns))
        print_rich(table)


def _blocks(rows: Sequence[Mapping[str, Text]], width: int) -> Iterator[list[str]]:
    """All columns, or as many as fit, each time behind the first.

    Only where that one tells rows apart and the others are short, numbers say; else lines are broken.
    """
    first, *others = rows[0]
    wide = {name: max(Text(name).cell_len, *(row[name].cell_len for row in rows)) + GAP for name in rows[0]}
    told_apart = len({row[first].plain for row in rows}) == len(rows)
    short = all(wide[name] <= width // 3 for name in others)
    if sum(wide.values()) - GAP <= width or not (told_apart and short):
        yield [first, *others]
        return
    block, left = [first], width - wide[first]
    for name in others:
        if wide[name] > left and len(block) > 1:
            yield block
            block, left = [first], width - wide[first]
        block.append(name)
        left -= wide[name]
    yield block


def _as_text(value: str | Text) -> Text:
    return value if isinstance(value, Text) else Text(visible(value))


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
    _console().print(thing)


def _console() -> Console:
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
