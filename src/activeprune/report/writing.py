"""The tables of one or several runs as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..experiment.files import write_text
from ..experiment.runs import Run
from .claims import claims_table
from .gathering import Gathered, gathered
from .layout import PREAMBLE, Section, csv, escaped, latex, markdown, safe
from .sweeps import sweep_tables
from .tables import accuracy_table, section

FILES = ("tables.md", "tables.tex", "tables.csv")


def write_tables(runs: Sequence[Run | Gathered], folder: str | Path) -> tuple[Path, ...]:
    """Writes tables.md, tables.tex and tables.csv into a folder, and says where they are."""
    read = told_apart([gathered(run) if isinstance(run, Run) else run for run in runs])
    made = sections(read)
    texts = (_markdown(made), _latex(made), csv(*map(accuracy_table, read)))
    paths = tuple(Path(folder) / name for name in FILES)
    for path, text in zip(paths, texts, strict=True):
        write_text(path, text)
    return paths


def sections(runs: Sequence[Gathered]) -> list[Section]:
    """One a run, and one for what they say together."""
    together = (*sweep_tables(runs), claims_table(runs))
    return [*map(section, runs), Section("All runs" if len(runs) > 1 else "The paper's text", together)]


def told_apart(runs: Iterable[Gathered]) -> list[Gathered]:
    """Runs of the same name are numbered.

    >>> told_apart([])
    []
    """
    read = list(runs)
    again = Counter(run.title for run in read)
    seen: Counter[str] = Counter()
    named = []
    for run in read:
        seen[run.title] += 1
        named.append(replace(run, title=f"{run.title} ({seen[run.title]})") if again[run.title] > 1 else run)
    return named


def _markdown(made: Iterable[Section]) -> str:
    blocks = []
    for one in made:
        notes = [f"- {safe(note)}" for note in one.notes]
        blocks += [f"## {safe(one.title)}\n", *(["\n".join(notes) + "\n"] if notes else []), *map(markdown, one.tables)]
    return "\n".join(blocks)


def _latex(made: Iterable[Section]) -> str:
    blocks = [PREAMBLE]
    for one in made:
        notes = [f"\\par\\noindent {escaped(note)}\n" for note in one.notes]
        blocks += [f"\\section*{{{escaped(one.title)}}}\n", *notes, *map(latex, one.tables)]
    return "\n".join(blocks)
