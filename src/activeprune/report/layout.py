"""A table as text pieces and as plain numbers, and how it is written: Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv as csv_format
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Origin(NamedTuple):
    """Trainings of a run, which is named by its title: those that a variant reports of a cycle.

    Without a cycle all that the variant's numbers rest on, reported or not; without a variant all of the run.
    """

    run: str
    variant: str | None = None
    cycle: int | None = None


class Piece(NamedTuple):
    """Some text, bold or not, and what its numbers rest on; the sources of a difference are those of both sides."""

    text: str
    bold: bool = False
    sources: tuple[Origin, ...] = ()


Cell = tuple[Piece, ...]
BOLD = "bold: "  # how a note begins that says what that is


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head, each as many as the head has; `records` are the plain numbers behind them.

    `name` is for programs.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.head) for row in self.rows):
            raise ValueError(f"table {self.title!r}: every row needs {len(self.head)} cells")


@dataclass(frozen=True)
class Section:
    """Tables under a heading."""

    title: str
    tables: tuple[Table, ...]
    notes: tuple[Piece, ...] = ()

    def table(self, name: str) -> Table | None:
        """The one of this name, if it is there."""
        return next((table for table in self.tables if table.name == name), None)


def cell(text: str, bold: bool = False, sources: Iterable[Origin] = ()) -> Cell:
    """Of one piece."""
    return (Piece(text, bold, tuple(sources)),)


def plain(of: Cell) -> str:
    """The text alone."""
    return "".join(piece.text for piece in of)


def markdown(table: Table) -> str:
    """A GitHub table under its title, and its notes as a list.

    >>> print(markdown(Table("t", ("a", "b"), ((cell("x"), cell("1", bold=True)),), ("n",))))
    ### t
    <BLANKLINE>
    | a | b |
    |---|---|
    | x | **1** |
    <BLANKLINE>
    - n
    <BLANKLINE>
    """
    lines = [_line(map(safe, table.head)), "|" + "---|" * len(table.head)]
    lines += [_line("".join(map(_marked, of)) for of in row) for row in table.rows]
    notes = [f"- {safe(note)}" for note in table.notes]
    blocks = [f"### {safe(table.title)}", "\n".join(lines), *(["\n".join(notes)] if notes else [])]
    return "\n\n".join(blocks) + "\n"


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _marked(piece: Piece) -> str:
    return f"**{safe(piece.text)}**" if piece.bold and piece.text else safe(piece.text)


def safe(text: str) -> str:
    """Nothing of it is Markdown; underscores inside words never are."""
    return re.sub(r"([\\|*`<\[]|(?<!\w)_|_(?!\w))", r"\\\1", _one_line(text))


_TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "λ": r"$\lambda$", "θ": r"$\theta$", "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "…": r"\ldots{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}  # fmt: skip


def latex(table: Table) -> str:
    r"""A booktabs table with caption and notes: smaller where it would be too wide, and broken where it would be too
    long for a page.

    >>> print(latex(Table("t", ("λ", "b"), ((cell("50 %"), cell("1", bold=True)),))))
    \begin{table}[htbp]
    \centering
    \caption{t}
    \fitted{\begin{tabular}{ll}
    \toprule
    $\lambda$ & b \\
    \midrule
    50 \% & \textbf{1} \\
    \bottomrule
    \end{tabular}}
    \end{table}
    <BLANKLINE>
    """
    rows = [_joined("".join(map(_set, of)) for of in row) for row in table.rows]
    notes = [f"\\par\\smallskip\\footnotesize {escaped(note)}" for note in table.notes]
    widths = [max(map(len, texts), default=0) for texts in zip(*(map(plain, row) for row in table.rows), strict=True)]
    if len(rows) > PAGE or max(widths, default=0) > LONGEST:
        return "\n".join([*_broken(table, rows, widths), *notes, r"\par}"]) + "\n"
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        f"\\caption{{{escaped(table.title)}}}",
        f"\\fitted{{\\begin{{tabular}}{{{'l' * len(table.head)}}}",
        r"\toprule",
        _joined(map(escaped, table.head)),
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        *notes,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _broken(table: Table, rows: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    """A table over several pages. Words of its head stand below each other where a column is narrower; columns with
    long texts share what the others leave of the line.
    """
    narrow = [max(width, *map(len, name.split())) for width, name in zip(widths, table.head, strict=True)]
    short = sum(width for width in narrow if width <= LONGEST)
    long = len(narrow) - sum(width <= LONGEST for width in narrow)
    size, letters = next((one for one in SIZES if short + LEAST * long <= one[1]), SIZES[-1])
    share = max(1 - short / letters - GAP * len(narrow), LEAST / letters) / max(long, 1)
    head = [
        escaped(name) if len(name) <= width else "\\shortstack[l]{" + r" \\ ".join(map(escaped, name.split())) + "}"
        for width, name in zip(narrow, table.head, strict=True)
    ]
    wide = f">{{\\raggedright\\arraybackslash}}p{{{share:.2f}\\linewidth}}"
    columns = "".join("l" if width <= LONGEST else wide for width in narrow)
    lines = [r"\toprule", _joined(head), r"\midrule"]
    yield f"{{{size}\\setlength{{\\tabcolsep}}{{2pt}}"
    yield f"\\begin{{longtable}}{{{columns}}}"
    yield f"\\caption{{{escaped(table.title)}}}\\\\"
    yield from (*lines, r"\endfirsthead", *lines, r"\endhead", r"\bottomrule", r"\endfoot")
    yield from (*rows, r"\end{longtable}")


def _joined(texts: Iterable[str]) -> str:
    return " & ".join(texts) + r" \\"


LONGEST = 40  # characters that a column may have before its lines are broken
LEAST = 30  # characters that each such column has, at least
PAGE = 30  # rows that a page has at its usual size
SIZES = ((r"\scriptsize", 80), (r"\tiny", 105))  # and how many characters a line of LaTeX's own article has in them
GAP = 0.015  # of a line between two columns
PREAMBLE = r"""% needs \usepackage{array,booktabs,graphicx,longtable}
\providecommand{\fitted}[1]{\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{#1}}
"""


def _set(piece: Piece) -> str:
    return f"\\textbf{{{escaped(piece.text)}}}" if piece.bold and piece.text else escaped(piece.text)


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> print(escaped("ap_lite: 91 % ± 2"))
    ap\_lite: 91 \% $\pm$ 2
    """
    return "".join(_TEX.get(sign, sign) for sign in _one_line(text))


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def csv(*tables: Table) -> str:
    """The records of tables that have the same columns, numbers as they are, nothing where one is missing."""
    records = [record for table in tables for record in table.records]
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv_format.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _written(value) for name, value in record.items()} for record in records)
    return text.getvalue()


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one


def _written(value: Any) -> Any:
    """Values by seed as "0=0.91 1=0.92", yes or no for what is true or false, and no text that a spreadsheet would
    compute.
    """
    if isinstance(value, Mapping):
        return " ".join(f"{key}={one!r}" for key, one in value.items())
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return ("no", "yes")[value] if isinstance(value, bool) else value
