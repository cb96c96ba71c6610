"""The tables of a run, each a pure function of what was gathered. Numbers are in per cent, records are fractions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from ..experiment.study import WITHOUT_AP
from .cells import (
    bare,
    best_of,
    cell_text,
    columns,
    density_cell,
    difference_text,
    number_cell,
    overlap_text,
    printed,
    record,
    spread,
    spread_of,
)
from .comparisons import Comparison, comparisons
from .gathering import Effort, Gathered, Training
from .layout import BOLD, Cell, Piece, Section, Source, Table, cell, csv, latex, markdown
from .packs import sittings
from .published import Published
from .published import accuracies as published_accuracies
from .published import dead_rates as published_rates
from .sweeps import sweep_tables
from .wording import MINUS, NONE, counted, duration, mean_std, percent, probability, signed, span

__all__ = [
    "Section", "Table", "about", "accuracy_table", "csv", "dead_table", "effort_table", "latex", "markdown",
    "paired_table", "paper_table", "relative_table", "section", "sweep_tables",
]  # fmt: skip

KINDS = tuple(product(("unit", "channel"), ("static", "dynamic")))


def section(run: Gathered) -> Section:
    """All tables of one run."""
    made = (accuracy_table, paper_table, paired_table, relative_table, dead_table, effort_table, packs_table)
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
            ours, source = spread(run, variant, cycle), Source(run.title, variant, cycle)
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
        title=f"{run.title}: beside the paper's {_name(paper)}",
        head=("variant", "λ", "here", "paper", "difference", "95 % intervals overlap"),
        rows=tuple(rows),
        notes=(
            f"intervals of the means by Student's t, the paper's from {paper.runs} runs; "
            "two that overlap do not show that the means are equal",
            *paper.notes,
        ),
    )


def paired_table(run: Gathered) -> Table | None:
    """Differences over common seeds; None where there is nothing to compare."""
    made, heads = comparisons(run), columns(run)
    if not made:
        return None
    notes = ["differences in percentage points over common seeds; 95 % interval and p of the paired t test"]
    if tested := made[0].paired.comparisons:
        notes.append(f"{counted(tested, 'comparison')} tested: p (Holm) is corrected for that")
    notes.append(
        "p (signs): exact sign-flip test, which asks for symmetric differences only; never below 2 / 2^n with n seeds"
    )
    if fair := _named(one for one in made if one.fair):
        notes.append(f"{fair}: fair, with the same start and the same number of epochs")
    if run.study.which_chain == "reinit" and (other := _named(one for one in made if not one.fair)):
        notes.append(
            f"{other}: the paper's own comparison; under chain reinit it sets one training from the start against "
            "two in a row, the second of which goes on from where the first ended"
        )
    return Table(
        name="paired",
        title=f"{run.title}: paired differences of test accuracy",
        head=("difference", "λ", "mean", "95 % interval", "p (t)", "p (Holm)", "p (signs)", "seeds", "verdict"),
        rows=tuple(_paired_cells(run, one, bare(heads[one.cycle])) for one in made),
        notes=tuple(notes),
        records=tuple({"run": run.title, **_flat(one)} for one in made),
    )


def relative_table(run: Gathered) -> Table | None:
    """Improvement over `plain` as the paper counts it; what no corrected test supports stands in brackets."""
    made = {(one.variant, one.cycle): one for one in comparisons(run) if one.against == "plain"}
    if not made:
        return None
    heads, paper = columns(run), published_accuracies(run.study)
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


def dead_table(run: Gathered) -> Table | None:
    """Dead-neuron rates after training, beside the paper's dynamic ones; None where they are not measured."""
    if "dnr" not in run.study.measure:
        return None
    heads, paper = columns(run), published_rates(run.study)
    rows, records = [], []
    for variant, cycle in product(run.study.variants, heads):
        rates = {kind: spread_of(_rates(run.of(variant, cycle), *kind)) for kind in KINDS}
        theirs = None if paper is None else paper.spread(variant, cycle)
        ours, source = rates["unit", "dynamic"], Source(run.title, variant, cycle)
        row = [cell(variant), density_cell(run, variant, cycle, bare(heads[cycle]))]
        row += [number_cell(text, source) for text in (*map(mean_std, rates.values()), str(ours.seeds))]
        if paper is not None:
            row += [cell(printed(theirs)), number_cell(difference_text(ours, theirs), source)]
        rows.append(tuple(row))
        told = {f"{of}_{what}": rate.mean for (of, what), rate in rates.items()}
        records.append({"run": run.title, "variant": variant, "cycle": cycle, **told, "seeds": ours.seeds})
    notes = ["unit: every value after an activation is a neuron; channel: a whole map is one"]
    if paper is not None:
        notes += ["the paper does not say which it counts; the difference is that of units", *paper.notes]
    return Table(
        name="dead",
        title=f"{run.title}: dead neurons after training in %, mean ± standard deviation",
        head=(
            *("variant", "λ", *(f"{of} {what}" for of, what in KINDS), "seeds"),
            *(() if paper is None else ("paper, dynamic", "unit dynamic − paper")),
        ),
        rows=tuple(rows),
        notes=tuple(notes),
        records=tuple(records),
    )


def effort_table(run: Gathered) -> Table:
    """Trainings and device time of each variant."""
    efforts = {variant: (effort, Source(run.title, variant)) for variant, effort in run.effort.items()}
    efforts["all together"] = run.in_all, Source(run.title)
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
    found, source = sittings(run.work), Source(run.title)
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
    return number_cell(text, Source(run.title, variant, cycle), bold=is_best)


def _name(paper: Published) -> str:
    """Table 1, ablation resnet20, q sweep vgg19."""
    return paper.name.replace("table", "table ").replace("_", " ")


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


def _sides(run: Gathered, one: Comparison) -> tuple[Source, ...]:
    """What a difference is taken between."""
    return tuple(Source(run.title, variant, one.cycle) for variant in (one.variant, one.against))


def _flat(one: Comparison) -> dict[str, Any]:
    told = one.as_dict()
    low, high = told.pop("interval") or (None, None)
    return {**told, "low": low, "high": high}


def _relative_cell(run: Gathered, one: Comparison) -> Cell:
    text = signed(one.relative, 1)
    shown = text if one.relative is None or one.paired.shown else f"({text})"
    return number_cell(shown, *_sides(run, one))


def _paper_relative(paper: Published | None, variant: str, cycle: int) -> float | None:
    """None as well where the two stand in different tables, whose AP-Lite differs: the paper does not compare them."""
    if paper is None or variant in paper.borrowed:
        return None
    own, base = paper.value(variant, cycle), paper.value("plain", cycle)
    return None if own is None or base is None else own.mean / base.mean - 1


def _rates(trainings: Mapping[int, Training], of: str, what: str) -> list[float]:
    return [one.after[of][what] for one in trainings.values() if one.after is not None]


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
        if (why := one.failure) is not None:
            text = f"failed: {one.variant} cycle {one.cycle} seed {one.seed}: {_reason(why)}"
            yield Piece(text, sources=(Source(run.title, one.variant, one.cycle),))


def _reason(why: Mapping[str, Any]) -> str:
    return f"loss {why.get('loss')} at step {why.get('step')} (epoch {why.get('epoch')}, learning rate {why.get('lr')})"
