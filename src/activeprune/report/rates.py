"""Tables of dead-neuron rates: where trainings ended, and where they started, which is what AP sets out to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from ..experiment.findings import Spread
from .cells import bare, columns, density_cell, difference_text, number_cell, other_density
from .gathering import Gathered
from .layout import Cell, Origin, Table, cell
from .trainings import KINDS, Rates, Reported
from .wording import mean_std, printed

HEADS = ("variant", "λ", *(f"{of} {what}" for of, what in KINDS), "seeds")
COUNTED = "unit: every value after an activation is a neuron; channel: a whole map is one"

When = Callable[[Reported], Rates | None]


def dead_table(run: Gathered) -> Table | None:
    """Dead-neuron rates after training, beside the paper's dynamic ones; None where they are not measured."""
    if "dnr" not in run.study.measure:
        return None
    heads, paper = columns(run), run.published_rates
    rows, records = [], []
    for variant, cycle in product(run.study.variants, heads):
        trainings = run.of(variant, cycle)
        rates, started = _spreads(trainings, _after), _spreads(trainings, _before)
        theirs = None if paper is None else paper.spread(variant, cycle)
        ours, source = rates["unit_dynamic"], Origin(run.title, variant, cycle)
        row = [cell(variant), _density(run, variant, cycle, heads[cycle])]
        row += [number_cell(text, source) for text in _texts(rates)]
        if paper is not None:
            row += [cell(printed(theirs)), number_cell(difference_text(ours, theirs), source)]
        rows.append(tuple(row))
        means = {kind: rate.mean for kind, rate in rates.items()}
        means |= {f"start_{kind}": rate.mean for kind, rate in started.items()}
        where = {"run": run.title, "variant": variant, "cycle": cycle, "density": run.density(variant, cycle)}
        records.append({**where, **means, "seeds": ours.seeds})
    notes = [COUNTED]
    if paper is not None:
        notes += ["the paper does not say which it counts; the difference is that of units", *paper.notes]
    return Table(
        name="dead",
        title=f"{run.title}: dead neurons after training in %, mean ± standard deviation",
        head=(*HEADS, *(() if paper is None else ("paper, dynamic", "unit dynamic − paper"))),
        rows=tuple(rows),
        notes=tuple(notes),
        records=tuple(records),
    )


def start_table(run: Gathered) -> Table | None:
    """Dead-neuron rates of the pruned network that a training starts from; None where they are not measured."""
    if "dnr" not in run.study.measure:
        return None
    rows = []
    for variant, (cycle, head) in product(run.study.variants, columns(run).items()):
        source, rates = Origin(run.title, variant, cycle), _spreads(run.of(variant, cycle), _before)
        texts = (number_cell(text, source) for text in _texts(rates))
        rows.append((cell(variant), _density(run, variant, cycle, head), *texts))
    return Table(
        name="start",
        title=f"{run.title}: dead neurons where training starts in %, mean ± standard deviation",
        head=HEADS,
        rows=tuple(rows),
        notes=(
            COUNTED,
            "of the network that a training goes on from: pruned, and rewound where its variant is; in eval mode, "
            "where a batch-norm that has seen no image yet changes nothing",
        ),
    )


def _density(run: Gathered, variant: str, cycle: int, head: str) -> Cell:
    """λ of a row: its cycle's, or its own where that is another."""
    if (other := other_density(run, variant, cycle)) is None:
        return density_cell(run, variant, cycle, bare(head))
    return number_cell(other, Origin(run.title, variant, cycle))


def _after(training: Reported) -> Rates | None:
    return training.after


def _before(training: Reported) -> Rates | None:
    return training.before


def _spreads(trainings: Mapping[int, Reported], when: When) -> dict[str, Spread]:
    found = [rates for one in trainings.values() if (rates := when(one)) is not None]
    return {f"{of}_{what}": Spread.of([rates[of][what] for rates in found]) for of, what in KINDS}


def _texts(rates: Mapping[str, Spread]) -> tuple[str, ...]:
    return (*map(mean_std, rates.values()), str(rates["unit_dynamic"].seeds))
