"""What a run will cost: trainings, time and disk, before anything is computed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch

from ..core.masks import Masks
from ..networks import build
from ..training.duration import Duration
from ..training.settings import NetworkChoice
from .collecting import LARGE, one_more_cycle
from .plan import Plan, Todo, behind, is_whole_training, part_of
from .plan.steps import Measure, Prune, Step, Train
from .store import Store
from .store.artifacts import CHECKPOINT, MASKS, RECORD, STATE, probe_part
from .work.speed import Speeds

BYTES_OF_AN_EPOCH = 250  # in a record
BYTES_OF_A_MEASUREMENT, BYTES_OF_A_LOOK = 10_000, 1_600  # at the dead neurons of 20 layers


@dataclass(frozen=True)
class Outlook:
    """`trainings` in all, `shared` by several variants or studies, `missing` in the store; steps by kind.

    `seconds` with a number of processes at work, None where no such training has been measured; `disk` in bytes.
    """

    trainings: int
    shared: int
    missing: int
    by_variant: dict[str, int]
    steps: dict[str, int]
    steps_missing: int
    seconds: float | None
    disk: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "trainings": {"total": self.trainings, "missing": self.missing, "shared": self.shared, **self.by_variant},
            "steps": {"total": sum(self.steps.values()), "missing": self.steps_missing, **self.steps},
            "seconds": self.seconds,
            "disk_bytes": self.disk,
        }


def outlook(plan: Plan, store: Store, speeds: Speeds, processes: int = 1) -> Outlook:
    """What is left to do, and what it will take at measured speeds (see `speed.known` and `speed.measured`)."""
    todo = plan.todo(store)
    by_variant = _trainings_by_variant(plan)
    uses = Counter(key for keys in by_variant.values() for key in keys)
    total: dict[str, set[str]] = defaultdict(set)
    for (_, variant), keys in by_variant.items():
        total[variant] |= keys
    return Outlook(
        trainings=len(plan.trainings),
        shared=sum(count > 1 for count in uses.values()),
        missing=sum(is_whole_training(step) for step in todo.missing),
        by_variant={variant: len(keys) for variant, keys in total.items()},
        steps=dict(Counter(step.kind for step in plan.steps.values())),
        steps_missing=len(todo.missing),
        seconds=_seconds(todo, speeds, processes),
        disk=_disk(plan, todo.missing),
    )


def _trainings_by_variant(plan: Plan) -> dict[tuple[int, str], set[str]]:
    """Keys of the trainings that each variant of each study needs."""
    found: dict[tuple[int, str], set[str]] = {}
    for index, study in enumerate(plan.studies):
        cells = Plan(study).cells
        for variant in study.variants:
            steps = behind(cell.training for cell in cells if cell.variant == variant)
            found[index, variant] = {key for key, step in steps.items() if is_whole_training(step)}
    return found


def _seconds(todo: Todo, speeds: Speeds, processes: int) -> float | None:
    """The work of all, shared by the processes; but no less than the longest chain of steps that wait for each other.

    Trainings of one shape with as many others before them go side by side, as far as that was measured, and each then
    takes as long as its pack. Prunings and measurements take seconds where trainings take minutes, and count nothing.
    """
    work, own = 0.0, {}
    for step in todo.missing:
        if not isinstance(step, Train):
            continue
        if (speed := speeds.of(step.training)) is None:
            return None
        count = todo.waves[todo.wave_of(step)]
        steps = speed.steps_of(step.training, step.first if step.resume is None else step.resume.last or 0, step.last)
        own[step.key] = steps * speed.together(min(count, speed.most))
        work += steps * speed.in_packs(count) / count
    return max(work / processes, max(todo.along_chains(own).values(), default=0.0))


def _disk(plan: Plan, missing: tuple[Step, ...]) -> int:
    """The most that the missing steps will have in the store at a time."""
    needed = _needed_until(plan, missing)
    changes: Counter[int] = Counter()  # at each position in the order of the missing steps
    for position, step in enumerate(missing):
        for part, size in {**_sizes(step), **_looks(step, plan.probe_every.get(step.key))}.items():
            changes[position] += size
            changes[needed.get((step.key, part), position) + 1 if part in LARGE else len(missing)] -= size
    changes[len(missing)] = 0
    return max(accumulate(changes[position] for position in range(len(missing) + 1)))


def _needed_until(plan: Plan, missing: tuple[Step, ...]) -> dict[tuple[str, str], int]:
    """The position of the last missing step that reads a part, or the end, where a study keeps it."""
    found: dict[tuple[str, str], int] = {}
    for position, step in enumerate(missing):
        found |= {(used.key, part_of(role, used)): position for role, used in step.inputs.items()}
    for study in plan.studies:
        if study.keep == "all":
            found |= {(key, part): len(missing) for key in Plan(study).steps for part in LARGE}
        elif study.keep == "frontier":
            later = [step for key, step in one_more_cycle(study).steps.items() if key not in plan.steps]
            found |= {pair: len(missing) for pair in Todo(tuple(later), (), ()).needed()}
    return found


def _sizes(step: Step) -> dict[str, int]:
    """Bytes of the parts of a step's result."""
    if isinstance(step, Prune):
        return {MASKS: _network_bytes(step.training.network)[1]}
    if isinstance(step, Measure):
        return {RECORD: BYTES_OF_A_MEASUREMENT}
    if not isinstance(step, Train):
        return {}
    state, _ = _network_bytes(step.training.network)
    epochs = step.training.epochs.count if step.training.epochs.unit == "ep" else 1
    sizes = {RECORD: BYTES_OF_AN_EPOCH * epochs, STATE: state}
    return sizes if step.last is None else {**sizes, CHECKPOINT: (2 if step.training.optimizer == "sgd" else 3) * state}


def _looks(step: Step, every: Duration | None) -> dict[str, int]:
    """Bytes of what a probe sees in a training."""
    if every is None or not isinstance(step, Train) or step.training.epochs.unit != every.unit:
        return {}
    return {probe_part(every): BYTES_OF_A_LOOK * (1 + (step.training.epochs.count - step.first) // every.count)}


@cache
def _network_bytes(network: NetworkChoice) -> tuple[int, int]:
    """Of a state, and of masks at one bit a weight.

    The network is built as it is by default: the number of classes, which the data tell, changes little.
    """
    with torch.device("meta"):
        model = build(network.name, **network.without_weights)
    state = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    return state, sum(mask.numel() for mask in Masks.dense(model).values()) // 8
