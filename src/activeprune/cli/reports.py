"""`activeprune report`."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import InputError
from ..report.claims import Claim
from ..report.comparisons import effort_dict
from ..report.gathering import Gathered
from ..report.layout import Section
from ..report.live import LiveReport, Ongoing, ended_politely
from ..report.records import write_records
from ..report.report import Report
from ..report.writing import FIGURES_FOLDER, draw_figures, draw_page, write_tables
from .show import AsJson, print_json, show_table, visible
from .sources import Given, given
from .studies import print_results, told

Found = list[tuple[Gathered, Section]]  # runs and their tables


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Folders of runs, of grids, or of reports."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of tables and figures; that of the run by default.")
    ] = None,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="Write no figures.")] = False,
    no_page: Annotated[bool, typer.Option("--no-page", help="Write no page.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Write tables and page again and again while the run goes on.")
    ] = False,
    every: Annotated[int, typer.Option(min=1, metavar="SECONDS", help="With --live: how often to look.")] = 10,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what runs found, finished or not, and write tables, figures and one page with both (report.html)."""
    sources = [given(folder) for folder in folders]
    folder = out or (sources[0].out if len(sources) == 1 else None)
    if live:
        if as_json or no_page:
            raise InputError("--live writes a page: --json and --no-page do not go with it")
        if any(one.job is None for one in sources):
            raise InputError("--live follows runs: the records of a report do not change")
        if folder is None:
            raise InputError("--live with several runs: --out DIR is needed, the folder of their page")
        runs = Ongoing([one.job for one in sources if one.job is not None], lambda: _made(sources)[0])
        show = _show if open_page else None
        with ended_politely():
            LiveReport(runs, folder, every, not no_figures, show).follow()
        return
    made, found = _made(sources)
    if as_json:
        print_json(_told(found, made.claims))
    else:
        for one, own in found:
            _print(one, own, several=len(sources) > 1)
    page = _write(made, folder, out is not None, not no_figures, not no_page)
    if open_page and page is not None:
        _show(page)


def _made(sources: Sequence[Given]) -> tuple[Report, list[tuple[Given, Found]]]:
    """The report of what is known now, and the part of it that is each source's."""
    read = [one.runs() for one in sources]
    made = Report(run for runs in read for run in runs)
    pairs = zip(made.runs, made.sections, strict=True)
    return made, [(one, [*islice(pairs, len(runs))]) for one, runs in zip(sources, read, strict=True)]


def _told(found: Sequence[tuple[Given, Found]], made: Sequence[Claim]) -> dict[str, Any]:
    """What was found, and what the report adds: of a single source the keys stay where they are."""
    reports = []
    for one, runs in found:
        own = told(one.job, [run for run, _ in runs])
        for study, (run, section) in zip(own.get("studies", [own]), runs, strict=True):
            study.update(_added(run, section))
        reports.append(own)
    both = {"claims": [claim.as_dict() for claim in made]}
    return {**reports[0], **both} if len(reports) == 1 else {"reports": reports, **both}


def _added(run: Gathered, section: Section) -> dict[str, Any]:
    accuracies = section.table("accuracy")
    cells = () if accuracies is None else accuracies.records
    return {
        "title": run.title,
        "paired": [one.as_dict() for one in run.comparisons],
        "effort": effort_dict(run),
        "paper": [dict(record) for record in cells if record["paper_table"] is not None],
    }


def _print(one: Given, found: Found, several: bool) -> None:
    if several:
        print(f"\n{one.out}")
    print_results(one.job, [run for run, _ in found])
    for _, section in found:
        if (table := section.table("paired")) is not None:
            show_table(table)
        for note in section.notes:
            print(visible(note.text))


def _write(made: Report, folder: Path | None, asked: bool, figures: bool, page: bool) -> Path | None:
    """Says where the page is. A folder that cannot be written matters only to who asked for it: all else is printed."""
    if folder is None:
        print("several runs: --out DIR writes their tables, figures and page", file=sys.stderr)
        return None
    try:
        paths = (*write_tables(made, folder), write_records(made.runs, folder))
        drawn = draw_figures(made, folder) if figures else []
        written = draw_page(made, folder) if page else None
    except InputError as error:
        if asked:
            raise
        print(f"the report is not written: {error}; --out DIR writes it elsewhere", file=sys.stderr)
        return None
    print(f"tables and records are in {', '.join(map(str, paths))}", file=sys.stderr)
    if drawn:
        print(
            f"figures are in {folder / FIGURES_FOLDER}: {', '.join(sorted({p.stem for p in drawn}))}", file=sys.stderr
        )
    if written is not None:
        print(f"the page is {written}", file=sys.stderr)
    return written


def _show(page: Path) -> None:
    webbrowser.open(page.resolve().as_uri())
