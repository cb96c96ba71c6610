"""What a run will cost: trainings, time and disk, before anything is computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from ..networks import build
from .plan import Plan
from .steps import Step, Train
from .store import FolderStore


@dataclass(frozen=True)
class Outlook:
    """`trainings` in all, `shared` by several variants, `missing` in the store; steps by kind; time and disk to come.

    `seconds` is None where no training of this network has been measured yet.
    """

    trainings: int
    shared: int
    missing: int
    by_variant: dict[str, int]
    steps: dict[str, int]
    steps_missing: int
    seconds: float | None
    disk: int  # bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "trainings": {"total": self.trainings, "missing": self.missing, "shared": self.shared, **self.by_variant},
            "steps": {"total": sum(self.steps.values()), "missing": self.steps_missing, **self.steps},
            "seconds": self.seconds,
            "disk_bytes": self.disk,
        }


def outlook(plan: Plan, store: FolderStore) -> Outlook:
    """What is left to do, and what it will take."""
    todo = plan.todo(store)
    missing = [step for step in todo.missing if isinstance(step, Train) and step.last is None]
    needed = {variant: _trainings_of(plan, variant) for variant in plan.study.variants}
    uses = Counter(key for keys in needed.values() for key in keys)
    per_training = _seconds_per_training(plan, store)
    return Outlook(
        trainings=len(plan.trainings),
        shared=sum(count > 1 for count in uses.values()),
        missing=len(missing),
        by_variant={variant: len(keys) for variant, keys in needed.items()},
        steps=dict(Counter(step.kind for step in plan.steps.values())),
        steps_missing=len(todo.missing),
        seconds=None if per_training is None else per_training * len(missing),
        disk=len(missing) * _bytes_of_a_state(plan),
    )


def _trainings_of(plan: Plan, variant: str) -> set[str]:
    found: set[str] = set()
    seen: set[str] = set()
    waiting: list[Step] = [cell.training for cell in plan.cells if cell.variant == variant]
    while waiting:
        step = waiting.pop()
        if step.key not in seen:
            seen.add(step.key)
            waiting += step.inputs.values()
            if isinstance(step, Train) and step.last is None:
                found.add(step.key)
    return found


def _seconds_per_training(plan: Plan, store: FolderStore) -> float | None:
    """The mean of this plan's trainings that are in the store already."""
    measured = [store.provenance(step.key) for step in plan.trainings if store.has(step.key)]
    seconds = [told["training_seconds"] for told in measured if "training_seconds" in told]
    return sum(seconds) / len(seconds) if seconds else None


def _bytes_of_a_state(plan: Plan) -> int:
    """Of the network as it is built by default: the number of classes, which the data tell, changes little."""
    network = plan.study.training.network
    options: dict[str, Any] = {name: value for name, value in network.options if name != "pretrained"}
    with torch.device("meta"):
        state = build(network.name, **options).state_dict()
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())
