"""Statements that can be tested: in an experiment of the paper one thing is higher than another, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Literal

from .cells import number_cell
from .comparisons import by_seed
from .gathering import Gathered
from .layout import Cell, Origin, cell, plain
from .paper import published
from .published import SHARE, cycle_of, differences, experiment_of
from .statistics import Interval, Paired, paired
from .trainings import trainings_to
from .wording import NONE, counted, percent, probability, signed, span

Status = Literal["holds", "fails", "not shown", "not run"]
Values = dict[int, float]  # by seed
Where = tuple[Gathered, str, int]  # a cell: run, variant and cycle
USUAL_Q, HIGH_Q = 0.02, 0.05  # the paper's, and the highest of its sweeps


@dataclass(frozen=True)
class Finding:
    """A statement and the numbers that it rests on: `paired` differences from a mean of `base`, or a `count`.

    `given` is its status where nothing is tested.
    `claimed` is the relative change that the paper gives, `other` are settings in which the run is not the paper's,
    `sources` the trainings that are compared.
    """

    says: str
    given: Status = "not run"
    run: str = ""
    paired: Paired | None = None
    base: float | None = None
    claimed: Interval | None = None
    count: str = ""
    other: tuple[str, ...] = ()
    sources: tuple[Origin, ...] = ()

    @property
    def status(self) -> Status:
        """Holds or fails where the interval lies on one side of 0, after Holm's correction, too."""
        if self.paired is None or self.claimed is None:
            return self.given
        direction = self.paired.shown * (1 if self.claimed.low > 0 else -1)
        return "holds" if direction > 0 else "fails" if direction < 0 else "not shown"

    @property
    def evidence(self) -> str:
        """In words and numbers, with the test that was used."""
        return plain(self.evidence_cell)

    @property
    def evidence_cell(self) -> Cell:
        """The same as a cell, in which the first number leads to what is compared."""
        if self.paired is None:
            return number_cell(self.count or NONE, *self.sources)
        found = self.paired
        parts = []
        if found.interval is None:
            parts.append(found.verdict)
        else:
            parts.append(f"95 % interval {span(found.interval)}")
            parts.append(f"paired t test: p {probability(found.p)}, {probability(found.p_holm)} after Holm")
        parts += self._size()
        parts += ["not the paper's settings"] if self.other else []
        first = f"{signed(found.mean)} points over {counted(found.seeds, 'seed')}"
        return number_cell(first, *self.sources) + cell("".join(f"; {part}" for part in parts))

    def _size(self) -> list[str]:
        """Beside the paper's."""
        if self.paired is None or self.paired.mean is None or self.claimed is None or not self.base:
            return []
        low, high = (f"{signed(end, 1)} %" for end in self.claimed)
        text = (
            f"relative {signed(self.paired.mean / self.base, 1)} %, claimed {low}{'' if low == high else f' to {high}'}"
        )
        if self.paired.interval is None:
            return [text]
        points = Interval(self.claimed.low * self.base, self.claimed.high * self.base)
        return [f"{text}, {'within' if self.paired.interval.overlaps(points) else 'outside'} the interval"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        fields = {"says": self.says, "status": self.status, "run": self.run, "evidence": self.evidence}
        return {**fields, "paired": None if self.paired is None else self.paired.as_dict(), "other": list(self.other)}


@dataclass(frozen=True)
class Statement:
    """The first of two is higher than the second, or lower if `claimed` is below 0, in runs of a table's experiment.

    `pairs` are the cells to be compared, run, variant and cycle of each, and `values` what is compared of them. What
    is `known` of a pair, because it is among the run's own comparisons, is taken from there, with its correction.
    """

    says: str
    table: str
    claimed: Interval
    values: Callable[[Gathered, str, int], Values]
    pairs: Callable[[Sequence[Gathered]], Iterable[tuple[Where, Where]]]
    known: Callable[[Where, Where], Paired | None] = lambda first, second: None

    def __call__(self, runs: Sequence[Gathered]) -> list[Finding]:
        """One finding for each run that has something to say, or one that says that there is none."""
        of = published()[self.table]
        experiment = of["network"], of["dataset"], of.get("method") or next(iter(of["rows"]))
        own = [run for run in runs if experiment_of(run.study) == experiment and run.study.p == SHARE]
        found = [self._finding(*pair) for pair in self.pairs(own)]
        return [one for one in found if one is not None] or [Finding(self.says)]

    def _finding(self, first: Where, second: Where) -> Finding | None:
        """None where no seed has both."""
        base = self.values(*second)
        found, run = self.known(first, second) or paired(self.values(*first), base), first[0]
        if not found.seeds:
            return None
        return Finding(
            says=self.says,
            run=run.title,
            paired=found,
            base=fmean(base[seed] for seed in found.values),
            claimed=self.claimed,
            other=differences(run.study, published()[self.table].get("training_of", self.table)),
            sources=tuple(Origin(of.title, variant, cycle) for of, variant, cycle in (first, second)),
        )


def by(low: float, high: float | None = None) -> Interval:
    """A relative change that the paper gives in per cent, as one number or as two."""
    return Interval(low / 100, (low if high is None else high) / 100)


def accuracy(table: str, printed: float, variant: str, against: str, claimed: Interval) -> Statement:
    """A variant is better or worse than another at a printed λ, by a part of the other's accuracy."""
    cycle = cycle_of(printed)
    return Statement(
        says=f"{_experiment(table)}: {variant} against {against} at λ {printed:g} %",
        table=table,
        claimed=claimed,
        values=by_seed,
        pairs=lambda runs: [((run, variant, cycle), (run, against, cycle)) for run in runs if _usual(run)],
        known=_compared,
    )


def worse_with_high_q(table: str, printed: float) -> Statement:
    """ap_lite is worse with q = 5 % than with 2 % at a printed λ, in two runs that differ in nothing else."""
    cycle = cycle_of(printed)
    means = {one["q"] / 100: one["mean"] for one in published()[table]["rows"][f"lambda_{printed}"]}
    change = means[HIGH_Q] / means[USUAL_Q] - 1
    return Statement(
        says=f"{_experiment(table)}: ap_lite with q = 5 % against q = 2 % at λ {printed:g} %",
        table=table,
        claimed=Interval(change, change),
        values=by_seed,
        pairs=lambda runs: [
            ((high, "ap_lite", cycle), (low, "ap_lite", cycle))
            for low in runs
            for high in runs
            if low.study.q == USUAL_Q and high.study == low.study.model_copy(update={"q": HIGH_Q})
        ],
    )


def fewer_dead(table: str, printed: str, of: str) -> Statement:
    """ap_lite has a lower dynamic dead-neuron rate than plain at a printed λ, counted by unit or by channel."""
    cycle, rows = cycle_of(float(printed)), published()[table]["rows"]
    change = rows["ap_lite_q2"][printed] / next(iter(rows.values()))[printed] - 1
    return Statement(
        says=f"{_experiment(table)}: dynamic rate by {of} of ap_lite against plain at λ {printed} %",
        table=table,
        claimed=Interval(change, change),
        values=partial(_dynamic, of),
        pairs=lambda runs: [((run, "ap_lite", cycle), (run, "plain", cycle)) for run in runs if _usual(run)],
    )


def no_more_trainings(runs: Sequence[Gathered]) -> list[Finding]:
    """ap_lite needs no more trainings than plain on the way to one λ, at every λ: counted, with nothing to test.

    A study of several λ may need more of them in all, an end of the chain at each; the paper's AP-Lite has one end.
    """
    says, found = "ap_lite needs no more trainings than plain to reach one λ", []
    both = ("ap_lite", "plain")
    for run in runs:
        if {*both} <= {*run.study.variants}:
            needed = trainings_to(run.study)
            more = {cycle: needed["ap_lite", cycle] - needed["plain", cycle] for cycle in run.study.reported}
            worst = max(more, key=lambda cycle: (more[cycle], cycle))
            status: Status = "fails" if more[worst] > 0 else "holds"
            lite, base = (needed[variant, worst] for variant in both)
            where = f"λ {percent(run.density_of(worst))}"
            count = f"counted for a seed: {lite} trainings against {base} from dense to {where}"
            sources = tuple(Origin(run.title, variant) for variant in both)
            found.append(Finding(says, status, run.title, count=count, sources=sources))
    return found or [Finding(says)]


def _compared(first: Where, second: Where) -> Paired | None:
    (run, variant, cycle), (_, against, _) = first, second
    found = (one for one in run.comparisons if (one.variant, one.against, one.cycle) == (variant, against, cycle))
    return next((one.paired for one in found), None)


def _experiment(table: str) -> str:
    of = published()[table]
    return f"{of['network']}, {of.get('method') or next(iter(of['rows']))}"


def _usual(run: Gathered) -> bool:
    return run.study.q == USUAL_Q


def _dynamic(of: str, run: Gathered, variant: str, cycle: int) -> Values:
    trainings = run.of(variant, cycle).items()
    return {seed: one.after[of]["dynamic"] for seed, one in trainings if one.after is not None}
