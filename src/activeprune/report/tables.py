"""The tables of a run, each a pure function of what was gathered. Numbers are in per cent, records are fractions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from .cells import (
    bare,
    best_of,
    cell_text,
    columns,
    density_cell,
    difference_text,
    number_cell,
    overlap_text,
    record,
    spread,
)
from .differences import paired_rates_table, paired_table, relative_table
from .gathering import Effort, Gathered
from .layout import BOLD, Cell, Origin, Piece, Section, Table, cell, csv, latex, markdown
from .packs import sittings
from .published import accuracies as published_accuracies
from .published import title_of
from .rates import dead_table, start_table
from .sweeps import sweep_tables
from .wording import NONE, counted, duration, printed

__all__ = [
    "Section", "Table", "about", "accuracy_table", "csv", "dead_table", "effort_table", "latex", "markdown",
    "paired_rates_table", "paired_table", "paper_table", "relative_table", "section", "start_table", "sweep_tables",
]  # fmt: skip


def section(run: Gathered) -> Section:
    """All tables of one run."""
    made = (
        *(accuracy_table, paper_table, paired_table, relative_table),
        *(dead_table, start_table, paired_rates_table, effort_table, packs_table),
    )
    tables = tuple(table for make in made if (table := make(run)) is not None)
    return Section(f"{run.title}: {about(run)}", tables, tuple(_gaps(run)))


def about(run: Gathered) -> str:
    """The study in one line."""
    study = run.study
    return (
        f"{study.training.network.name} on {study.training.data.name}, {study.method.name}, "
        f"chain {study.which_chain}, p = {study.p:g}, q = {study.q:g}, {counted(len(study.seeds), 'seed')}"
    )


def accuracy_table(run: Gathered) -> Table:
    """The paper's layout: variants in rows, λ in columns, the best of a column in bold; the paper's rows below."""
    heads, paper = columns(run), published_accuracies(run.study)
    best = {cycle: best_of(run, cycle) for cycle in heads}
    rows = [
        (cell(variant), *(_accuracy_cell(run, variant, cycle, best[cycle]) for cycle in heads))
        for variant in run.study.variants
    ]
    for variant in run.study.variants:
        theirs = [None if paper is None else paper.spread(variant, cycle) for cycle in heads]
        if any(one is not None for one in theirs):
            rows.append((cell(f"{variant}, paper"), *(cell(printed(one)) for one in theirs)))
    seeds = counted(len(run.study.seeds), "seed")
    return Table(
        name="accuracy",
        title=f"{run.title}: test accuracy in %, mean ± standard deviation over {seeds}",
        head=("variant", *heads.values()),
        rows=tuple(rows),
        notes=(
            f"{BOLD}the highest mean of a column, among cells of equally many seeds; alone it is no evidence: "
            "see the paired differences",
        ),
        records=tuple(record(run, variant, cycle, paper) for variant in run.study.variants for cycle in heads),
    )


def paper_table(run: Gathered) -> Table | None:
    """Each cell beside the paper's; None where the paper has no such table."""
    paper = published_accuracies(run.study)
    if paper is None:
        return None
    heads = columns(run)
    rows = []
    for variant, cycle in product(run.study.variants, heads):
        if (theirs := paper.spread(variant, cycle)) is not None:
            ours, source = spread(run, variant, cycle), Origin(run.title, variant, cycle)
            row = (
                cell(variant),
                density_cell(run, variant, cycle, bare(heads[cycle])),
                number_cell(cell_text(run, variant, cycle), source),
                cell(printed(theirs)),
                number_cell(difference_text(ours, theirs), source),
                cell(overlap_text(ours, theirs)),
            )
            rows.append(row)
    if not rows:
        return None
    return Table(
        name="paper",
        title=f"{run.title}: beside the paper's {title_of(paper.name)}",
        head=("variant", "λ", "here", "paper", "difference", "95 % intervals overlap"),
        rows=tuple(rows),
        notes=(
            f"intervals of the means by Student's t, the paper's from {paper.runs} runs; "
            "two that overlap do not show that the means are equal",
            *paper.notes,
        ),
    )


def effort_table(run: Gathered) -> Table:
    """Trainings and device time of each variant."""
    efforts = {variant: (effort, Origin(run.title, variant)) for variant, effort in run.effort.items()}
    efforts["all together"] = run.in_all, Origin(run.title)
    notes = ["a training that several variants need is counted for each of them, and once in all together"]
    if run.machines:
        notes.append(f"computed on: {', '.join(run.machines)}")
    return Table(
        name="effort",
        title=f"{run.title}: trainings and device time",
        head=("variant", "trainings", "done", "device time", "a training"),
        rows=tuple(
            (cell(name), *(number_cell(text, source) for text in _effort_texts(effort)))
            for name, (effort, source) in efforts.items()
        ),
        notes=tuple(notes),
    )


def packs_table(run: Gathered) -> Table | None:
    """Where the time of a GPU went; None where no trainings went together."""
    found, source = sittings(run.work), Origin(run.title)
    if not found:
        return None
    rows = []
    for one in found:
        numbers = (str(len(one.packs)), str(one.trainings), duration(one.seconds))
        shares = (f"{100 * one.in_packs:.0f} %", f"{100 * one.in_steps:.0f} %", f"{one.images_per_second:,.0f}")
        rows.append((cell(f"{one.began:%Y-%m-%d %H:%M}"), *(number_cell(text, source) for text in numbers + shares)))
    return Table(
        name="packs",
        title=f"{run.title}: trainings that went together on a GPU",
        head=("began (UTC)", "packs", "trainings", "time", "in packs", "in training steps", "images/s"),
        rows=tuple(rows),
        notes=(
            "time: from the first training to the end of the last; images/s: in training, with all else in that time",
            "what is in packs but not in steps is evaluation, looks at dead neurons, and what was measured beside them",
        ),
    )


def _accuracy_cell(run: Gathered, variant: str, cycle: int, best: float | None) -> Cell:
    mean = spread(run, variant, cycle).mean
    text, is_best = cell_text(run, variant, cycle), mean is not None and mean == best
    return number_cell(text, Origin(run.title, variant, cycle), bold=is_best)


def _effort_texts(effort: Effort) -> tuple[str, ...]:
    each = duration(effort.seconds / effort.done) if effort.done else NONE
    return str(effort.trainings), str(effort.done), duration(effort.seconds), each


def _gaps(run: Gathered) -> Iterable[Piece]:
    """What is missing, and what failed and how."""
    missing = sum(one.missing for one in run.trainings)
    if missing:
        yield Piece(f"not finished: {missing} of {len(run.trainings)} reported trainings are missing")
    for key in dict.fromkeys(one.key for one in run.trainings if one.damaged):
        yield Piece(f"damaged in the store, and missing here: {key}; the same `activeprune run` computes it again")
    for one in run.trainings:
        if one.failed is not None:
            yield Piece(f"failed: {one.failed}", sources=(Origin(run.title, one.variant, one.cycle),))
