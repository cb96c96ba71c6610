"""All that a report is made of, read once from a run and its store: tables, figures and pages are functions of this."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..experiment.artifacts import masks_of
from ..experiment.chains import Cell
from ..experiment.files import read_json
from ..experiment.findings import GRANULARITIES, PARTS
from ..experiment.plan import MASKS, Plan, behind, probe_part, record_of
from ..experiment.runs import RUN_FILE, Run
from ..experiment.steps import Measure, Train
from ..experiment.store import Damaged, Missing, Store
from .comparisons import Comparison, comparisons, dead_units
from .cost import LayerCost, layers_of_study
from .layers import Cells, maps
from .published import Published, accuracies, dead_rates
from .trainings import Rates, Reported, Trainings, Work


@dataclass(frozen=True)
class Gathered(Trainings):
    """A run, and what follows from it alone: worked out when it is first asked for, and then kept."""

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Of accuracies."""
        return comparisons(self)

    @cached_property
    def compared_rates(self) -> list[Comparison]:
        """Of dynamic dead-neuron rates after training; none where they are not measured."""
        return comparisons(self, dead_units) if "dnr" in self.study.measure else []

    @cached_property
    def published(self) -> Published | None:
        """The paper's accuracies to compare with."""
        return accuracies(self.study)

    @cached_property
    def published_rates(self) -> Published | None:
        """The paper's dynamic dead-neuron rates to compare with."""
        return dead_rates(self.study)

    @cached_property
    def layer_costs(self) -> dict[str, LayerCost] | None:
        """What each layer of the dense network costs, where that can be told."""
        return layers_of_study(self.study)

    @cached_property
    def layer_maps(self) -> dict[str, Cells]:
        """What is known of the layers: densities and dead-neuron rates by variant and cycle."""
        return maps(self)


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
    known = record_of(store, cell.training.key)
    record = known or {}
    pruned = (None if cell.masks is None else record_of(store, cell.masks.key)) or {}
    return Reported(
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
        probes=_probes(cell.training, plan, store),
        layers={} if cell.masks is None else _densities(cell.masks.key, store),
        provenance=_told(store, cell.training.key),
        keys={
            name: step.key
            for name, step in (("masks", cell.masks), ("before", cell.before), ("after", cell.after))
            if step is not None
        },
        damaged=known is None and something,
        shortfall=pruned.get("shortfall") or 0,
    )


def _measured(step: Measure | None, store: Store) -> Rates | None:
    return None if step is None else record_of(store, step.key)


def _probes(training: Train, plan: Plan, store: Store) -> tuple[Mapping[str, Any], ...]:
    every = plan.probed.get(training.key)
    content = None if every is None else _part(store, training.key, probe_part(every))
    probed = [] if content is None else json.loads(content)["probed"]
    return tuple(_in_all(seen) for seen in probed if "unit" in seen)


def _in_all(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What was seen of the whole network; its layers, at every probe, would be most of a report."""
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
        return store.provenance(key)
    except (Missing, Damaged):
        return {}


def _work(plan: Plan, store: Store, done: Mapping[str, Mapping[str, Any]]) -> Iterator[Work]:
    """The whole trainings of a plan; `done` is what is told of those that are."""
    variants = dict.fromkeys(cell.variant for cell in plan.cells)
    behind_it = {v: behind(cell.training for cell in plan.cells if cell.variant == v).keys() for v in variants}
    for step in plan.trainings:
        needing = tuple(variant for variant, keys in behind_it.items() if step.key in keys)
        told = done.get(step.key)
        if told is None or "pack" not in told:
            yield Work(step.key, needing, None if told is None else float(told.get("seconds", 0.0)))
            continue
        epochs = (record_of(store, step.key) or {}).get("epochs")
        yield Work(
            step.key,
            needing,
            seconds=float(told["seconds"]),
            pack=int(told["pack"]),
            images=epochs[-1]["step"] * step.training.batch if epochs else 0,
            images_per_second=float(told["images_per_second"]),
            finished=str(told["finished"]),
        )
