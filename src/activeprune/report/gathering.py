"""All that a report is made of, read once from a run and its store: tables, figures and pages are functions of this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from ..experiment.findings import GRANULARITIES, PARTS, Row, dead_of, how_failed, summaries
from ..experiment.plan import Plan, behind
from ..experiment.plan.chains import Cell, planned_density
from ..experiment.plan.steps import Measure, Train
from ..experiment.plan.study import Study
from ..experiment.runs import RUN_FILE, Run
from ..experiment.store import Damaged, Missing, Store
from ..experiment.store.artifacts import MASKS, masks_of
from ..experiment.store.files import read_json
from ..experiment.store.provenance import Provenance, sound
from ..experiment.store.records import looks, measure_record, outcome_of, prune_record, train_record

KINDS = tuple(product(GRANULARITIES, PARTS))  # of dead neurons
Rates = dict[str, Any]  # of `DeadNeurons.as_dict`


@dataclass(frozen=True)
class Reported:
    """A training that a table reports, and all that is known of it.

    Accuracies are fractions. `accuracy` is None where it is missing or where the training failed; then `failure` says
    how. `before` and `after` are dead-neuron rates where it started and where it ended, `looks` those on the way.
    `layers` is the density of each pruned layer.
    """

    variant: str
    cycle: int  # 0: dense
    seed: int
    key: str  # in the store
    density: float | None = None
    accuracy: float | None = None
    best_epoch: int | None = None
    failure: Mapping[str, Any] | None = None
    epochs: tuple[Mapping[str, Any], ...] = ()
    before: Rates | None = None
    after: Rates | None = None
    looks: tuple[Mapping[str, Any], ...] = ()
    layers: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)  # of its masks and of what was measured of it
    damaged: bool = False  # something is in the store, but not what was put there
    shortfall: int = 0  # weights that AP's rule could not find in the pruning before it

    @property
    def missing(self) -> bool:
        """Whether it has not been done yet."""
        return self.accuracy is None and self.failure is None

    @property
    def failed(self) -> str | None:
        """Which one it is and how it failed, None where it did not."""
        if self.failure is None:
            return None
        return f"{self.variant} cycle {self.cycle} seed {self.seed}: {how_failed(self.failure)}"

    @property
    def row(self) -> Row:
        """What is summed up of it, as `rows_of` reads it from a store."""
        told = {name: getattr(self, name) for name in ("variant", "cycle", "seed", "density", "accuracy", "failure")}
        return told | dead_of({when: getattr(self, when) for when in ("before", "after") if when in self.keys})


@dataclass(frozen=True)
class Work:
    """A whole training, reported or not, and the variants whose numbers rest on it.

    In a pack, `seconds` are its share, and `images_per_second` are those of all, in training steps alone.
    """

    key: str  # in the store
    variants: tuple[str, ...]
    seconds: float | None = None  # that it took; None while it is not done
    pack: int = 0  # how many trainings went together; 0 where it was alone in its process
    images: int = 0  # in training
    images_per_second: float = 0.0
    finished: str = ""  # when, in UTC


@dataclass(frozen=True)
class Effort:
    """How many trainings there are, those of them that are done, and the seconds that these took."""

    trainings: int
    done: int
    seconds: float

    @classmethod
    def of(cls, work: Iterable[Work]) -> Effort:
        """Of some trainings, each counted once.

        >>> Effort.of([Work("a", ("plain",), 2.0), Work("b", ("plain",))])
        Effort(trainings=2, done=1, seconds=2.0)
        """
        took = [one.seconds for one in work]
        done = [seconds for seconds in took if seconds is not None]
        return cls(len(took), len(done), sum(done))


@dataclass(frozen=True)
class Gathered:
    """A run: the trainings that it reports, and the work that these rest on."""

    title: str
    study: Study
    trainings: tuple[Reported, ...]
    work: tuple[Work, ...]
    machines: tuple[str, ...]
    imports: tuple[str, ...] = ()  # modules that had to be imported before the study could be read

    def of(self, variant: str, cycle: int) -> dict[int, Reported]:
        """The trainings of a cell by seed."""
        return self._cells.get((variant, cycle), {})

    @cached_property
    def _cells(self) -> dict[tuple[str, int], dict[int, Reported]]:
        found: dict[tuple[str, int], dict[int, Reported]] = {}
        for training in self.trainings:
            found.setdefault((training.variant, training.cycle), {})[training.seed] = training
        return found

    def density(self, variant: str, cycle: int) -> float | None:
        """λ of a cell, None while no training of it is done."""
        return next((one.density for one in self.of(variant, cycle).values() if one.density is not None), None)

    def density_of(self, cycle: int) -> float:
        """λ of a cycle, of the first variant that has one: as it is, or as it will be but for rounding."""
        found = (self.density(variant, cycle) for variant in self.study.variants)
        known = next((one for one in found if one is not None), None)
        return planned_density(self.study, self.study.variants[0], cycle) if known is None else known

    def work_of(self, variant: str) -> list[Work]:
        """What a variant's numbers rest on; a training that several variants need is counted for each of them."""
        return [one for one in self.work if variant in one.variants]

    @cached_property
    def effort(self) -> dict[str, Effort]:
        """By variant."""
        return {variant: Effort.of(self.work_of(variant)) for variant in self.study.variants}

    @property
    def in_all(self) -> Effort:
        """Of all variants together, which counts each training once."""
        return Effort.of(self.work)

    @property
    def cycles(self) -> tuple[int, ...]:
        """All that are reported, the dense network's 0 among them."""
        return tuple(sorted({training.cycle for training in self.trainings}))

    def as_dict(self) -> dict[str, Any]:
        """The study and its cells, for JSON."""
        cells = [cell.as_dict() for cell in summaries(training.row for training in self.trainings)]
        return {"study": self.study.model_dump(mode="json"), "cells": cells}


def gathered(run: Run) -> Gathered:
    """What the store of a run has, finished or not."""
    plan, store = run.plan, run.store
    done = {key: told for key, step in plan.steps.items() if isinstance(step, Train) and (told := _told(store, key))}
    return Gathered(
        title=run.out.name,
        study=run.study,
        trainings=tuple(_training(cell, plan, store) for cell in plan.cells),
        work=tuple(_work(plan, store, done)),
        machines=tuple(sorted({str(told["machine"]) for told in done.values() if "machine" in told})),
        imports=_imports(run),
    )


def _imports(run: Run) -> tuple[str, ...]:
    path = run.out / RUN_FILE
    return tuple(map(str, read_json(path, "imports")["imports"])) if path.is_file() else ()


def _training(cell: Cell, plan: Plan, store: Store) -> Reported:
    something = store.has_something(cell.training.key)  # until it is read: what is damaged may be set aside then
    record = train_record(store, cell.training.key)
    pruned = None if cell.masks is None else prune_record(store, cell.masks.key)
    return Reported(
        variant=cell.variant,
        cycle=cell.cycle,
        seed=cell.seed,
        key=cell.training.key,
        **outcome_of(record),
        epochs=() if record is None else record.lines,
        before=_measured(cell.before, store),
        after=_measured(cell.after, store),
        looks=_looks(cell.training, plan, store),
        layers={} if cell.masks is None else _densities(cell.masks.key, store),
        provenance=_told(store, cell.training.key),
        keys={
            name: step.key
            for name, step in (("masks", cell.masks), ("before", cell.before), ("after", cell.after))
            if step is not None
        },
        damaged=record is None and something,
        shortfall=0 if pruned is None else pruned.shortfall,
    )


def _measured(step: Measure | None, store: Store) -> Rates | None:
    return None if step is None else measure_record(store, step.key)


def _looks(training: Train, plan: Plan, store: Store) -> tuple[Mapping[str, Any], ...]:
    try:
        return tuple(_in_all(seen) for seen in looks(store, training.key, plan.probed.get(training.key)))
    except (Missing, Damaged):
        return ()


def _in_all(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What was seen of the whole network; its layers, at every look, would be most of a report."""
    rates = {of: {what: seen[of][what] for what in PARTS} for of in GRANULARITIES}
    return {"step": seen["step"], **rates}


def _densities(key: str, store: Store) -> dict[str, float]:
    content = _part(store, key, MASKS)
    if content is None:
        return {}
    return {name: int(mask.sum()) / mask.numel() for name, mask in masks_of(content).items()}


def _part(store: Store, key: str, part: str) -> bytes | None:
    try:
        return store.get(key, part) if store.has(key, part) else None
    except (Missing, Damaged):
        return None


def _told(store: Store, key: str) -> dict[str, Any]:
    try:
        return sound(store.provenance(key))
    except (Missing, Damaged):
        return {}


def _work(plan: Plan, store: Store, done: Mapping[str, Mapping[str, Any]]) -> Iterator[Work]:
    """The whole trainings of a plan; `done` is what is told of those that are."""
    variants = dict.fromkeys(cell.variant for cell in plan.cells)
    behind_it = {v: behind(cell.training for cell in plan.cells if cell.variant == v).keys() for v in variants}
    for step in plan.trainings:
        needing = tuple(variant for variant, keys in behind_it.items() if step.key in keys)
        if step.key not in done:
            yield Work(step.key, needing)
            continue
        how = Provenance.of(done[step.key])
        if how.pack is None:
            yield Work(step.key, needing, how.seconds or 0.0)
            continue
        record = train_record(store, step.key)
        yield Work(
            step.key,
            needing,
            seconds=how.seconds or 0.0,
            pack=how.pack,
            images=record.epochs[-1].step * step.training.batch if record and record.epochs else 0,
            images_per_second=how.images_per_second or 0.0,
            finished=how.finished or "",
        )
