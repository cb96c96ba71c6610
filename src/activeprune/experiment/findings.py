"""What a run found so far: pure functions of its plan and its store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from statistics import fmean, stdev
from typing import Any

from ..core.errors import InputError
from ..training.result import Failure
from .plan import Plan
from .plan.steps import Train
from .store import Store
from .store.records import looks, measure_record, outcome_of, prune_record, train_record

Row = dict[str, Any]

DNR = "dnr_"  # begins the names of dead-neuron rates
GRANULARITIES = ("unit", "channel")  # what is counted as a neuron
PARTS = ("static", "dynamic")  # the ways to be dead


class Rows(list[Row]):
    """One row a cell and seed: variant, cycle, seed, density, accuracy, best_epoch, failure, key, how it was pruned.

    What is missing has accuracy None and failure None; a training that failed says why. `by_method` and `by_rule` are
    the weights that X and AP removed in this cycle, `shortfall` those that AP could not find. Where a study measures
    dead neurons, `dnr_after_unit_dynamic` and the like are their rates: before or after the training, of units or
    channels, static, dynamic or total.
    """

    def frame(self) -> Any:
        """As a pandas DataFrame."""
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError as error:
            raise InputError("pandas is not installed: pip install pandas") from error
        return pandas.DataFrame(self)


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of some seeds' values."""

    mean: float | None
    std: float | None
    seeds: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Of values that are there."""
        return cls(fmean(values) if values else None, stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Summary:
    """One cell of a table over its seeds: accuracies are fractions, `std` is the sample standard deviation."""

    variant: str
    cycle: int
    density: float | None
    mean: float | None
    std: float | None
    seeds: int  # that have a value
    values: dict[int, float]
    missing: list[int]
    failed: list[int]
    dnr: dict[str, Spread] | None = None
    """Dead-neuron rates by name, "after_unit_dynamic" and so on; None where they are not measured."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON; seeds as text, as JSON wants its keys."""
        return {**asdict(self), "values": {str(seed): value for seed, value in self.values.items()}}


def rows_of(plan: Plan, store: Store) -> Rows:
    """All cells of a plan, with what the store has of them."""
    rows = Rows()
    for cell in plan.cells:
        pruned = None if cell.masks is None else prune_record(store, cell.masks.key)
        rows.append(
            {
                "variant": cell.variant,
                "cycle": cell.cycle,
                "seed": cell.seed,
                **outcome_of(train_record(store, cell.training.key)),
                "key": cell.training.key,
                **{name: getattr(pruned, name, None) for name in ("alive", "by_method", "by_rule", "shortfall")},
                **dead_of({when: measure_record(store, step.key) for when, step in cell.measured.items()}),
            }
        )
    return rows


def dead_of(measured: Mapping[str, Mapping[str, Any] | None]) -> Row:
    """Dead-neuron rates of a row by when they were measured, None where they are still missing."""
    kinds = product(measured.items(), GRANULARITIES, (*PARTS, "total"))
    return {f"{DNR}{when}_{of}_{what}": (found or {}).get(of, {}).get(what) for (when, found), of, what in kinds}


def how_failed(failure: Mapping[str, Any]) -> str:
    """The failure of a row in a few words."""
    return str(Failure(**failure))


def probe_lines(plan: Plan, store: Store) -> Iterator[Row]:
    """One row for each look at a reported training: its dead-neuron rates after so many steps."""
    for cell in plan.cells:
        where = {"variant": cell.variant, "cycle": cell.cycle, "seed": cell.seed, "key": cell.training.key}
        for seen in looks(store, cell.training.key, plan.probe_every.get(cell.training.key)):
            rates = {f"{of}_{what}": seen[of][what] for of, what in product(GRANULARITIES, PARTS)}
            yield {**where, "step": seen["step"], **rates}


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """Mean and standard deviation over seeds; failed trainings are never averaged in.

    >>> two = [{"variant": "plain", "cycle": 1, "seed": s, "density": 0.8, "accuracy": a, "failure": None}
    ...        for s, a in enumerate((0.5, 0.7))]
    >>> cell = summaries(two)[0]
    >>> round(cell.mean, 3), round(cell.std, 3), cell.seeds
    (0.6, 0.141, 2)
    """
    grouped: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["variant"], row["cycle"]].append(row)
    return [_summary(variant, cycle, group) for (variant, cycle), group in grouped.items()]


def epoch_lines(plan: Plan, store: Store) -> Iterator[Row]:
    """One row an epoch of every training of the plan that is in the store."""
    reports: dict[str, list[str]] = defaultdict(list)
    for cell in plan.cells:
        reports[cell.training.key].append(f"{cell.variant}/{cell.cycle}")
    for step in plan.steps.values():
        if isinstance(step, Train) and (record := train_record(store, step.key)) is not None:
            for epoch in record.lines:
                yield {"key": step.key, "seed": step.seed, "reported_as": reports.get(step.key, []), **epoch}


def _summary(variant: str, cycle: int, group: list[Row]) -> Summary:
    values = {row["seed"]: row["accuracy"] for row in group if row["accuracy"] is not None}
    failed = [row["seed"] for row in group if row["failure"] is not None]
    missing = [row["seed"] for row in group if row["accuracy"] is None and row["failure"] is None]
    densities = [row["density"] for row in group if row["density"] is not None]
    found = Spread.of(list(values.values()))
    return Summary(
        variant=variant,
        cycle=cycle,
        density=densities[0] if densities else None,
        mean=found.mean,
        std=found.std,
        seeds=found.seeds,
        values=values,
        missing=missing,
        failed=failed,
        dnr=_spreads(group),
    )


def _spreads(group: list[Row]) -> dict[str, Spread] | None:
    names = [name for name in group[0] if name.startswith(DNR)]
    if not names:
        return None
    found = {name: [row[name] for row in group if row[name] is not None] for name in names}
    return {name.removeprefix(DNR): Spread.of(values) for name, values in found.items()}
