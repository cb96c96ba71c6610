"""All that a report is made of, read once from a run and its store: tables, figures and pages are functions of this."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..experiment.artifacts import masks_of
from ..experiment.chains import Cell
from ..experiment.files import read_json
from ..experiment.plan import MASKS, Plan, behind, is_whole_training, probe_part, record_of
from ..experiment.runs import RUN_FILE, Run
from ..experiment.steps import Measure, Train
from ..experiment.store import Damaged, Missing, Store
from ..experiment.study import Study

Rates = dict[str, Any]  # of `DeadNeurons.as_dict`


@dataclass(frozen=True)
class Training:
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

    @property
    def missing(self) -> bool:
        """Whether it has not been done yet."""
        return self.accuracy is None and self.failure is None


@dataclass(frozen=True)
class Effort:
    """Trainings that a variant rests on, those of them that are done, and the seconds that these took."""

    trainings: int
    done: int
    seconds: float


@dataclass(frozen=True)
class Gathered:
    """A run. `effort` by variant counts a training for each variant that needs it, `in_all` counts it once."""

    title: str
    study: Study
    trainings: tuple[Training, ...]
    effort: Mapping[str, Effort]
    in_all: Effort
    machines: tuple[str, ...]
    imports: tuple[str, ...] = ()  # modules that had to be imported before the study could be read

    def of(self, variant: str, cycle: int) -> dict[int, Training]:
        """The trainings of a cell by seed."""
        return self._cells.get((variant, cycle), {})

    @cached_property
    def _cells(self) -> dict[tuple[str, int], dict[int, Training]]:
        found: dict[tuple[str, int], dict[int, Training]] = {}
        for training in self.trainings:
            found.setdefault((training.variant, training.cycle), {})[training.seed] = training
        return found

    @property
    def cycles(self) -> tuple[int, ...]:
        """All that are reported, the dense network's 0 among them."""
        return tuple(sorted({training.cycle for training in self.trainings}))


def gathered(run: Run) -> Gathered:
    """What the store of a run has, finished or not."""
    plan, store = run.plan, run.store
    done = {key: told for key, step in plan.steps.items() if isinstance(step, Train) and (told := _told(store, key))}
    return Gathered(
        title=run.out.name,
        study=run.study,
        trainings=tuple(_training(cell, plan, store) for cell in plan.cells),
        effort={variant: _effort(_trainings(plan, variant), done) for variant in run.study.variants},
        in_all=_effort({step.key for step in plan.trainings}, done),
        machines=tuple(sorted({str(told["machine"]) for told in done.values() if "machine" in told})),
        imports=_imports(run),
    )


def _imports(run: Run) -> tuple[str, ...]:
    path = run.out / RUN_FILE
    return tuple(map(str, read_json(path, "imports")["imports"])) if path.is_file() else ()


def _training(cell: Cell, plan: Plan, store: Store) -> Training:
    something = store.has_something(cell.training.key)  # until it is read: what is damaged may be set aside then
    known = record_of(store, cell.training.key)
    record = known or {}
    return Training(
        variant=cell.variant,
        cycle=cell.cycle,
        seed=cell.seed,
        key=cell.training.key,
        density=record.get("density"),
        accuracy=record.get("accuracy"),
        best_epoch=record.get("best_epoch"),
        failure=record.get("failure"),
        epochs=tuple(record.get("epochs", ())),
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
        damaged=known is None and something,
    )


def _measured(step: Measure | None, store: Store) -> Rates | None:
    return None if step is None else record_of(store, step.key)


def _looks(training: Train, plan: Plan, store: Store) -> tuple[Mapping[str, Any], ...]:
    every = plan.probed.get(training.key)
    content = None if every is None else _part(store, training.key, probe_part(every))
    probed = [] if content is None else json.loads(content)["probed"]
    return tuple(_in_all(seen) for seen in probed if "unit" in seen)


def _in_all(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What was seen of the whole network; its layers, at every look, would be most of a report."""
    rates = {of: {what: seen[of][what] for what in ("static", "dynamic")} for of in ("unit", "channel")}
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
        return store.provenance(key)
    except (Missing, Damaged):
        return {}


def _trainings(plan: Plan, variant: str) -> set[str]:
    """Keys of the trainings that a variant's numbers rest on."""
    steps = behind(cell.training for cell in plan.cells if cell.variant == variant)
    return {key for key, step in steps.items() if is_whole_training(step)}


def _effort(keys: set[str], done: Mapping[str, Mapping[str, Any]]) -> Effort:
    own = [done[key] for key in keys if key in done]
    return Effort(len(keys), len(own), sum(float(told.get("seconds", 0.0)) for told in own))
