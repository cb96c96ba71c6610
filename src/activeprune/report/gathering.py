"""All that a report is made of, read once from a run and its store: tables, figures and pages are functions of this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..experiment.findings import GRANULARITIES, PARTS
from ..experiment.plan import Plan, behind
from ..experiment.plan.chains import Cell
from ..experiment.plan.steps import Measure, Train
from ..experiment.runs import Run
from ..experiment.store import Damaged, Missing, Store
from ..experiment.store.artifacts import MASKS, masks_of, usable
from ..experiment.store.provenance import Provenance, sound
from ..experiment.store.records import looks, measure_record, outcome_of, prune_record, train_record
from .comparisons import Comparison, comparisons
from .cost import LayerCost, layers_of_study
from .layers import Cells, maps
from .published import Published, accuracies, dead_rates
from .series import dead
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
        return comparisons(self, dead("unit", "dynamic")) if "dnr" in self.study.measure else []

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
    trained = [key for key, step in plan.steps.items() if isinstance(step, Train)]
    done = {key: how for key in trained if (how := _provenance(store, key))}
    return Gathered(
        title=run.out.name,
        study=run.study,
        trainings=tuple(_training(cell, plan, store) for cell in plan.cells),
        work=tuple(_work(plan, store, done)),
        machines=tuple(sorted({str(how["machine"]) for how in done.values() if "machine" in how})),
        imports=run.imports,
    )


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
        probes=_probes(cell.training, plan, store),
        layers={} if cell.masks is None else _densities(cell.masks.key, store),
        provenance=_provenance(store, cell.training.key),
        keys={name: step.key for name, step in {"masks": cell.masks, **cell.measured}.items() if step is not None},
        damaged=record is None and something,
        shortfall=0 if pruned is None else pruned.shortfall,
    )


def _measured(step: Measure | None, store: Store) -> Rates | None:
    return None if step is None else measure_record(store, step.key)


def _probes(training: Train, plan: Plan, store: Store) -> tuple[Mapping[str, Any], ...]:
    try:
        return tuple(_in_all(seen) for seen in looks(store, training.key, plan.probe_every.get(training.key)))
    except (Missing, Damaged):
        return ()


def _in_all(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What was seen of the whole network; its layers, at every probe, would be most of a report."""
    rates = {of: {what: seen[of][what] for what in PARTS} for of in GRANULARITIES}
    return {"step": seen["step"], **rates}


def _densities(key: str, store: Store) -> dict[str, float]:
    content = _part(store, key, MASKS)
    if content is None:
        return {}
    with usable(key, MASKS):
        return {name: int(mask.sum()) / mask.numel() for name, mask in masks_of(content).items()}


def _part(store: Store, key: str, part: str) -> bytes | None:
    try:
        return store.get(key, part) if store.has(key, part) else None
    except (Missing, Damaged):
        return None


def _provenance(store: Store, key: str) -> dict[str, Any]:
    try:
        return sound(store.provenance(key))
    except (Missing, Damaged):
        return {}


def _work(plan: Plan, store: Store, done: Mapping[str, Mapping[str, Any]]) -> Iterator[Work]:
    """The whole trainings of a plan; `done` is the provenance of those that are, by key."""
    variants = dict.fromkeys(cell.variant for cell in plan.cells)
    behind_it = {v: behind(cell.training for cell in plan.cells if cell.variant == v).keys() for v in variants}
    for step in plan.trainings:
        needing = tuple(variant for variant, keys in behind_it.items() if step.key in keys)
        if step.key not in done:
            yield Work(step.key, needing)
            continue
        how = Provenance.of(done[step.key])
        if how.pack is None or how.engine == "eager":  # whose networks take turns
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
