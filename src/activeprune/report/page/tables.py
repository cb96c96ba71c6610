"""Tables as the page shows them: numbers that lead to what they rest on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..layout import Origin, Piece, Table, plain
from ..looks import LOOKS
from .provenance import anchor

NUMBER = re.compile(r"^[(<]? ?[+−]?\d|^–$|^missing$|^failed$")
SHORT = 28  # characters of a number with all that belongs to it
Numbers = Mapping[str, int]  # of the page's runs, by title


@dataclass(frozen=True)
class Shown:
    """A piece of text: the name of the place that it leads to, and those of what it is taken against, with labels."""

    text: str
    bold: bool = False
    place: str | None = None
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ShownTable:
    """A table under its caption; `numeric` says which columns are set flush right."""

    name: str
    caption: str
    head: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[tuple[Shown, ...], ...], ...]
    notes: tuple[str, ...]


def shown(table: Table, runs: Numbers, title: str = "") -> ShownTable:
    """A table; its caption does without the title of a run, under which it stands."""
    texts = [[plain(cell) for cell in column] for column in zip(*table.rows, strict=True)] or [[] for _ in table.head]
    return ShownTable(
        name=table.name,
        caption=table.title.removeprefix(f"{title}: "),
        head=table.head,
        numeric=tuple(bool(column) and all(map(_is_short_number, column)) for column in texts),
        rows=tuple(tuple(tuple(linked(piece, runs) for piece in cell) for cell in row) for row in table.rows),
        notes=table.notes,
    )


def linked(piece: Piece, runs: Numbers) -> Shown:
    """Some text with the places of its sources in the provenance of their runs."""
    if not piece.sources:
        return Shown(piece.text, piece.bold)
    first, *others = piece.sources
    against = tuple((_label(other, first), _place(other, runs)) for other in others)
    return Shown(piece.text, piece.bold, _place(first, runs), against)


def _place(source: Origin, runs: Numbers) -> str:
    return anchor(runs[source.run], source.variant, source.cycle)


def _label(source: Origin, first: Origin) -> str:
    named = "all" if source.variant is None else LOOKS[source.variant].label
    return named if source.run == first.run else f"{named} of {source.run}"


def _is_short_number(text: str) -> bool:
    return bool(NUMBER.match(text)) and len(text) <= SHORT
