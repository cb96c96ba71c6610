"""Several runs that differ in q alone, in one table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product

from ..experiment.plan.study import WITHOUT_AP
from .cells import bare, cell_text, columns, density_cell, number_cell, spread
from .gathering import Gathered
from .layout import Cell, Origin, Table, cell
from .wording import printed


def sweep_tables(runs: Sequence[Gathered]) -> list[Table]:
    """Accuracy against q, one table for each set of runs that differ in nothing else."""
    alike: dict[str, list[Gathered]] = defaultdict(list)
    for run in runs:
        alike[run.study.model_copy(update={"q": 0.0}).model_dump_json()].append(run)
    groups = [sorted(group, key=lambda run: run.study.q) for group in alike.values()]
    return [_sweep(group) for group in groups if len({run.study.q for run in group}) == len(group) > 1]


def _sweep(runs: Sequence[Gathered]) -> Table:
    study, heads = runs[0].study, columns(runs[0])
    rows = []
    for variant, cycle in product((one for one in study.variants if one not in WITHOUT_AP), heads):
        if cycle:
            means = {run.study.q: spread(run, variant, cycle).mean for run in runs}
            highest = max((mean for mean in means.values() if mean is not None), default=None)
            cells = [_swept(run, variant, cycle, means[run.study.q] == highest) for run in runs]
            rows.append((cell(variant), density_cell(runs[0], variant, cycle, bare(heads[cycle])), *cells))
    return Table(
        name="sweep",
        title=f"{study.training.network.name}, {study.method.name}: test accuracy in % against q",
        head=("variant", "λ", *(f"q = {100 * run.study.q:g} %" for run in runs)),
        rows=tuple(rows),
        notes=("bold: the highest mean of a row; in brackets the paper's",),
    )


def _swept(run: Gathered, variant: str, cycle: int, best: bool) -> Cell:
    paper = run.published
    theirs = paper.spread(variant, cycle) if paper is not None and paper.name.startswith("q_sweep") else None
    best = best and spread(run, variant, cycle).mean is not None
    own = number_cell(cell_text(run, variant, cycle), Origin(run.title, variant, cycle), bold=best)
    return own if theirs is None else (*own, *cell(f" ({printed(theirs)})"))
