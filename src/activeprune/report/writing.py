"""The tables, the page and the figures of one or several runs as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from ..experiment.search import folder_name
from ..experiment.store.files import explained, write_text
from .claims import claims_table
from .differences import paired_table
from .gathering import Gathered
from .layout import PREAMBLE, Section, csv, escaped, latex, markdown, safe
from .rates import dead_table
from .sweeps import sweep_tables
from .tables import accuracy_table, section

RECORDED = {"tables.csv": accuracy_table, "paired.csv": paired_table, "dead_neurons.csv": dead_table}
FIGURES_FOLDER = "figures"
FILES = ("tables.md", "tables.tex", *RECORDED)


def write_tables(runs: Sequence[Gathered], folder: str | Path) -> tuple[Path, ...]:
    """Writes tables.md, tables.tex and the CSV files that there is something for, and says where they are."""
    read = told_apart(runs)
    made = sections(read)
    texts = {"tables.md": _markdown(made), "tables.tex": _latex(made)}
    for name, make in RECORDED.items():
        if tables := [table for run in read if (table := make(run)) is not None]:
            texts[name] = csv(*tables)
    for name in FILES:
        path = Path(folder) / name
        if name in texts:
            write_text(path, texts[name])
        else:
            with explained("file", path):
                path.unlink(missing_ok=True)
    return tuple(Path(folder) / name for name in texts)


def draw_page(runs: Sequence[Gathered], folder: Path, live: tuple[str, int] | None = None, images: bool = True) -> Path:
    """Writes report.html and says where it is; `live`: when, and after how many seconds to look for another."""
    from .page import Live, write_page  # Bokeh takes a second to come

    return write_page(runs, folder, None if live is None else Live(*live), images)


def draw_figures(runs: Sequence[Gathered], folder: Path) -> list[Path]:
    """Writes each run's figures into figures/, in a folder of its own where there are several."""
    from .figures import write_figures  # matplotlib takes a second to come

    below = folder / FIGURES_FOLDER
    with explained("folder", below):
        places = [below / folder_name(run.title) for run in runs] if len(runs) > 1 else [below]
        return [path for run, place in zip(runs, places, strict=True) for path in write_figures(run, place)]


def sections(runs: Sequence[Gathered]) -> list[Section]:
    """One a run, and one for what they say together."""
    together = (*sweep_tables(runs), claims_table(runs))
    return [*map(section, runs), Section("All runs" if len(runs) > 1 else "The paper's text", together)]


def told_apart(runs: Iterable[Gathered]) -> list[Gathered]:
    """Runs of the same name are numbered, so that no two have one.

    >>> told_apart([])
    []
    """
    read = list(runs)
    again = Counter(run.title for run in read)
    named: dict[str, Gathered] = {}
    for run in read:
        numbered = (f"{run.title} ({number})" for number in count(1))
        free = next(name for name in numbered if name not in {*again, *named})
        own = run if again[run.title] == 1 else replace(run, title=free)
        named[own.title] = own
    return [*named.values()]


def _markdown(made: Iterable[Section]) -> str:
    blocks = []
    for one in made:
        notes = [f"- {safe(note.text)}" for note in one.notes]
        blocks += [f"## {safe(one.title)}\n", *(["\n".join(notes) + "\n"] if notes else []), *map(markdown, one.tables)]
    return "\n".join(blocks)


def _latex(made: Iterable[Section]) -> str:
    blocks = [PREAMBLE]
    for one in made:
        notes = [f"\\par\\noindent {escaped(note.text)}\n" for note in one.notes]
        blocks += [f"\\section*{{\\raggedright {escaped(one.title)}}}\n", *notes, *map(latex, one.tables)]
    return "\n".join(blocks)
