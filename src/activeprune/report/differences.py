"""Tables of paired differences: each AP variant against those without AP, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..experiment.plan.study import WITHOUT_AP
from .cells import bare, columns, density_cell, number_cell, other_density
from .comparisons import Comparison
from .gathering import Gathered
from .layout import Cell, Origin, Table, cell
from .published import Published
from .wording import MINUS, counted, percent, probability, signed, span


def paired_table(run: Gathered) -> Table | None:
    """Differences of accuracy over common seeds; None where there is nothing to compare."""
    return _table(run, run.comparisons, "paired", "test accuracy") if run.comparisons else None


def paired_rates_table(run: Gathered) -> Table | None:
    """Differences of the dynamic dead-neuron rate after training; None where there is nothing to compare."""
    if not run.compared_rates:
        return None
    return _table(run, run.compared_rates, "paired_rates", "the dynamic dead-neuron rate by unit after training")


def relative_table(run: Gathered) -> Table | None:
    """Improvement over `plain` as the paper counts it; what no corrected test supports stands in brackets."""
    made = {(one.variant, one.cycle): one for one in run.comparisons if one.against == "plain"}
    if not made:
        return None
    heads, paper = columns(run), run.published
    variants = [variant for variant in run.study.variants if variant not in WITHOUT_AP]
    rows = [
        (cell(f"{variant}, here"), *(_relative_cell(run, made[variant, k]) for k in heads if k)) for variant in variants
    ]
    for variant in variants:
        theirs = [_paper_relative(paper, variant, cycle) for cycle in heads if cycle]
        if any(one is not None for one in theirs):
            rows.append((cell(f"{variant}, paper"), *(cell(signed(one, 1)) for one in theirs)))
    return Table(
        name="relative",
        title=f"{run.title}: improvement over plain in % of its accuracy",
        head=("variant", *(head for cycle, head in heads.items() if cycle)),
        rows=tuple(rows),
        notes=(
            "in brackets: the paired 95 % interval contains 0, or does after Holm's correction, or there is none, "
            "so no improvement is claimed",
        ),
    )


def _table(run: Gathered, made: Sequence[Comparison], name: str, of: str) -> Table:
    heads = columns(run)
    return Table(
        name=name,
        title=f"{run.title}: paired differences of {of}",
        head=("difference", "λ", "mean", "95 % interval", "p (t)", "p (Holm)", "p (signs)", "seeds", "verdict"),
        rows=tuple(_paired_cells(run, one, bare(heads[one.cycle])) for one in made),
        notes=tuple(_notes(made)),
        records=tuple({"run": run.title, **_flat(one)} for one in made),
    )


def _notes(made: Sequence[Comparison]) -> Iterator[str]:
    yield "differences in percentage points over common seeds; 95 % interval and p of the paired t test"
    if tested := made[0].paired.comparisons:
        yield f"{counted(tested, 'comparison')} tested: p (Holm) is corrected for that"
    yield "p (signs): exact sign-flip test, which asks for symmetric differences only; never below 2 / 2^n with n seeds"
    if fair := _named(one for one in made if one.fair):
        yield f"{fair}: fair, with the same start and the same number of epochs"
    for why in dict.fromkeys(one.unfair for one in made if not one.fair):
        yield f"{_named(one for one in made if one.unfair == why)}: {why}"


def _paired_cells(run: Gathered, one: Comparison, head: str) -> tuple[Cell, ...]:
    found, sides = one.paired, _sides(run, one)
    density, (first, second) = density_cell(run, one.variant, one.cycle, head), one.densities
    if first is not None and second is not None and first != second:
        density += number_cell(f", but {percent(first)} against {percent(second)}", *sides)
    p_values = map(probability, (found.p, found.p_holm, found.p_exact))
    numbers = (signed(found.mean), span(found.interval), *p_values, str(found.seeds))
    return (
        cell(_named([one])),
        density,
        *(number_cell(text, *sides) for text in numbers),
        cell(found.verdict),
    )


def _named(made: Iterable[Comparison]) -> str:
    return ", ".join(dict.fromkeys(f"{one.variant} {MINUS} {one.against}" for one in made))


def _sides(run: Gathered, one: Comparison) -> tuple[Origin, ...]:
    """What a difference is taken between."""
    return tuple(Origin(run.title, variant, one.cycle) for variant in (one.variant, one.against))


def _flat(one: Comparison) -> dict[str, Any]:
    fields = one.as_dict()
    low, high = fields.pop("interval") or (None, None)
    return {**fields, "low": low, "high": high}


def _relative_cell(run: Gathered, one: Comparison) -> Cell:
    text = signed(one.relative, 1)
    shown = text if one.relative is None or one.paired.shown else f"({text})"
    other = other_density(run, one.variant, one.cycle)
    return number_cell(shown if one.relative is None or other is None else f"{shown} at λ {other}", *_sides(run, one))


def _paper_relative(paper: Published | None, variant: str, cycle: int) -> float | None:
    """None as well where the two stand in different tables, whose AP-Lite differs: the paper does not compare them."""
    if paper is None or variant in paper.borrowed:
        return None
    own, base = paper.value(variant, cycle), paper.value("plain", cycle)
    return None if own is None or base is None else own.mean / base.mean - 1
