"""The tables of a run, each a pure function of what was gathered. Numbers are in per cent, records are fractions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from ..experiment.plan.study import Study
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
from .efforts import effort_table, packs_table
from .gathering import Gathered
from .layout import BOLD, Cell, Origin, Piece, Section, Table, cell
from .rates import dead_table, start_table
from .wording import counted, printed


def section(run: Gathered) -> Section:
    """All tables of one run."""
    made = (
        *(accuracy_table, paper_table, paired_table, relative_table),
        *(dead_table, start_table, paired_rates_table, effort_table, packs_table),
    )
    tables = tuple(table for make in made if (table := make(run)) is not None)
    return Section(f"{run.title}: {about(run.study)}", tables, tuple(_gaps(run)))


def about(study: Study) -> str:
    """A study in one line."""
    return (
        f"{study.training.network.name} on {study.training.data.name}, {study.method.name}, "
        f"chain {study.which_chain}, p = {study.p:g}, q = {study.q:g}, {counted(len(study.seeds), 'seed')}"
    )


def accuracy_table(run: Gathered) -> Table:
    """The paper's layout: variants in rows, λ in columns, the best of a column in bold; the paper's rows below."""
    heads, paper = columns(run), run.published
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
    paper = run.published
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
    name = paper.name.replace("table", "table ").replace("_", " ")
    return Table(
        name="paper",
        title=f"{run.title}: beside the paper's {name}",
        head=("variant", "λ", "here", "paper", "difference", "95 % intervals overlap"),
        rows=tuple(rows),
        notes=(
            f"intervals of the means by Student's t, the paper's from {paper.runs} runs; "
            "two that overlap do not show that the means are equal",
            *paper.notes,
        ),
    )


def _accuracy_cell(run: Gathered, variant: str, cycle: int, best: float | None) -> Cell:
    mean = spread(run, variant, cycle).mean
    text, is_best = cell_text(run, variant, cycle), mean is not None and mean == best
    return number_cell(text, Origin(run.title, variant, cycle), bold=is_best)


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
