"""The tables, the page and the figures of a report as files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..experiment.search import folder_name
from ..experiment.store.files import explained, write_text
from .layout import PREAMBLE, Section, csv, escaped, latex, markdown, safe
from .report import Live, Report

RECORDED = {"tables.csv": "accuracy", "paired.csv": "paired", "dead_neurons.csv": "dead"}  # of which tables
FIGURES_FOLDER, PAGE = "figures", "report.html"
FILES = ("tables.md", "tables.tex", *RECORDED)


def write_tables(report: Report, folder: str | Path) -> tuple[Path, ...]:
    """Writes tables.md, tables.tex and the CSV files that there is something for, and says where they are."""
    made = (*report.sections, report.together)
    texts = {"tables.md": _markdown(made), "tables.tex": _latex(made)}
    for name, of in RECORDED.items():
        if tables := [table for own in report.sections if (table := own.table(of)) is not None]:
            texts[name] = csv(*tables)
    for name in FILES:
        path = Path(folder) / name
        if name in texts:
            write_text(path, texts[name])
        else:
            with explained("file", path):
                path.unlink(missing_ok=True)
    return tuple(Path(folder) / name for name in texts)


def draw_page(report: Report, folder: Path, live: Live | None = None, images: bool = True) -> Path:
    """Writes report.html into a folder, all of it or nothing, and says where it is; `images` as `page` has them."""
    from .page import page  # Bokeh takes a second to come

    path = folder / PAGE
    write_text(path, page(report, live, images))
    return path


def draw_figures(report: Report, folder: Path) -> list[Path]:
    """Writes each run's figures into figures/, in a folder of its own where there are several."""
    from .figures import write_figures  # matplotlib takes a second to come

    below = folder / FIGURES_FOLDER
    with explained("folder", below):
        several = len(report.runs) > 1
        places = [below / folder_name(run.title) if several else below for run in report.runs]
        return [path for own, place in zip(report.printed, places, strict=True) for path in write_figures(own, place)]


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
