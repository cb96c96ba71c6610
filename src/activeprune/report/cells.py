"""One cell of a table: its numbers, its text, and the paper's beside it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..experiment.findings import Spread
from .comparisons import by_seed
from .gathering import Gathered
from .layout import Cell, Origin, cell
from .published import Published
from .statistics import interval
from .wording import NONE, mean_std, percent, signed


def columns(run: Gathered) -> dict[int, str]:
    """λ of each cycle; where two are printed alike, the cycle, too."""
    texts = {cycle: f"λ {percent(run.density_of(cycle))}" for cycle in run.cycles}
    again = Counter(texts.values())
    return {cycle: text if again[text] == 1 else f"{text} (cycle {cycle})" for cycle, text in texts.items()}


def bare(head: str) -> str:
    """A column's λ without the sign, where the column of a table has it for a head.

    >>> bare("λ 64.0 %")
    '64.0 %'
    """
    return head.removeprefix("λ ")


def density_cell(run: Gathered, variant: str, cycle: int, text: str) -> Cell:
    """λ of a row, as its cycle's column has it; it leads to the row's own trainings, or to those that have this λ."""
    found = {one: run.density(one, cycle) for one in (variant, *run.study.variants)}
    having = [one for one, density in found.items() if density == run.density_of(cycle)]
    return cell(text, sources=[Origin(run.title, one, cycle) for one in having[:1]])


def number_cell(text: str, *sources: Origin, bold: bool = False) -> Cell:
    """A number that leads to what it rests on; where there is nothing to say, nothing is behind it."""
    return cell(text, bold, () if text == NONE else sources)


def best_of(run: Gathered, cycle: int) -> float | None:
    """The highest mean of a column, where there is more than one; of fewer seeds than others have, none counts."""
    found = [spread(run, variant, cycle) for variant in run.study.variants]
    most = max((one.seeds for one in found), default=0)
    means = {one.mean for one in found if one.mean is not None and one.seeds == most}
    return max(means) if len(means) > 1 else None


def cell_text(run: Gathered, variant: str, cycle: int) -> str:
    """Mean and deviation; how many seeds where some are missing, and λ where it is not the column's."""
    trainings, found = run.of(variant, cycle), spread(run, variant, cycle)
    failed = sum(one.failure is not None for one in trainings.values())
    if found.mean is None:
        return "failed" if failed else "missing"
    text = mean_std(found)
    if found.seeds < len(trainings):
        text += f" ({found.seeds} of {len(trainings)}{f', {failed} failed' if failed else ''})"
    other = other_density(run, variant, cycle)
    return text if other is None else f"{text} at λ {other}"


def other_density(run: Gathered, variant: str, cycle: int) -> str | None:
    """λ of a cell where it is not the column's; as it will be, where nothing is trained yet."""
    own, planned = run.density(variant, cycle), run.planned(variant, cycle)
    if own is None and planned != run.planned(run.study.variants[0], cycle):
        own = planned
    return None if own is None or own == run.density_of(cycle) else percent(own)


def spread(run: Gathered, variant: str, cycle: int) -> Spread:
    """Accuracies over seeds."""
    return Spread.of([*by_seed(run, variant, cycle).values()])


def record(run: Gathered, variant: str, cycle: int, paper: Published | None) -> dict[str, Any]:
    """A cell as plain numbers: fractions throughout."""
    trainings, ours = run.of(variant, cycle), spread(run, variant, cycle)
    value = None if paper is None else paper.value(variant, cycle)
    theirs = None if paper is None else paper.spread(variant, cycle)
    return {
        "run": run.title,
        "variant": variant,
        "cycle": cycle,
        "density": run.density(variant, cycle),
        "mean": ours.mean,
        "std": ours.std,
        "seeds": ours.seeds,
        "values": by_seed(run, variant, cycle),
        "missing": " ".join(str(seed) for seed, one in trainings.items() if one.missing),
        "failed": " ".join(str(seed) for seed, one in trainings.items() if one.failure is not None),
        "paper_table": None if paper is None or value is None else paper.table_of(variant),
        "paper_density": None if value is None else round(value.printed / 100, 6),
        "paper_mean": None if value is None else value.mean,
        "paper_std": None if value is None else value.std,
        "difference": None if value is None or ours.mean is None else ours.mean - value.mean,
        "overlap": overlaps(ours, theirs),
    }


def overlaps(ours: Spread, theirs: Spread | None) -> bool | None:
    """Whether the confidence intervals of two means overlap; None where one is unknown."""
    here, there = interval(ours), None if theirs is None else interval(theirs)
    return None if here is None or there is None else here.overlaps(there)


def overlap_text(ours: Spread, theirs: Spread) -> str:
    """The same in words."""
    found = overlaps(ours, theirs)
    if found is None:
        return "one seed: no interval" if ours.seeds == 1 else NONE
    return "yes" if found else "no"


def difference_text(ours: Spread, theirs: Spread | None) -> str:
    """Ours minus theirs, in percentage points."""
    if theirs is None or ours.mean is None or theirs.mean is None:
        return NONE
    return signed(ours.mean - theirs.mean)
