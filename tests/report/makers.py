"""Runs as they would be gathered, with accuracies that a test chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from activeprune.experiment.plan.reading import read_study
from activeprune.report.gathering import Gathered
from activeprune.report.trainings import Reported, Work

Values = Mapping[tuple[str, int], Sequence[float | str | None]]  # of a variant and cycle, by seed; in per cent

FAILURE = {"loss": "nan", "step": 7, "epoch": 1, "lr": 0.03}


def made(
    name: str, values: Values, title: str | None = None, dynamic: Values | None = None, **changes: Any
) -> Gathered:
    """A run of a study: what `values` does not name is missing, "failed" is a training that failed."""
    study = read_study(name, {"seeds": 3, **changes})
    trainings = [
        _training(
            Reported(variant=variant, cycle=cycle, seed=seed, key=f"{variant}{cycle}{seed}"),
            (1 - study.p) ** cycle,
            _at(values, variant, cycle, seed),
            _at(dynamic or {}, variant, cycle, seed),
        )
        for variant in study.variants
        for cycle in (0, *study.reported)
        for seed in study.seeds
    ]
    own = [one for more, variant in enumerate(study.variants) for one in _work(variant, more)]
    return Gathered(title or name, study, tuple(trainings), (Work("dense", study.variants, 24.0), *own), ("a CPU",))


def _work(variant: str, more: int) -> list[Work]:
    """What a variant needs beside the training that all do: nine trainings and some more, four of which are done."""
    took = [24.0] * 4 + [None] * (5 + more)
    return [Work(f"{variant}-{number}", (variant,), seconds) for number, seconds in enumerate(took)]


def _training(missing: Reported, density: float, found: float | str | None, rate: float | None) -> Reported:
    """The training as it is with what was found of it."""
    if found is None:
        return missing
    if isinstance(found, str):
        return replace(missing, density=density, failure=FAILURE)
    kind = {"static": 0.0, "dynamic": 0.0 if rate is None else rate / 100}
    after = None if rate is None else {"unit": kind, "channel": {**kind, "dynamic": kind["dynamic"] / 10}}
    return replace(missing, density=density, accuracy=found / 100, after=after)


def _at(values: Values, variant: str, cycle: int, seed: int) -> Any:
    own = values.get((variant, cycle), ())
    return own[seed] if seed < len(own) else None
