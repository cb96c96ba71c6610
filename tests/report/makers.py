"""Runs as they would be gathered, with accuracies that a test chooses."""

from collections.abc import Mapping, Sequence
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
        _training(variant, cycle, seed, values, dynamic or {}, study.p)
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


def _training(variant: str, cycle: int, seed: int, values: Values, dynamic: Values, p: float) -> Reported:
    known = {"variant": variant, "cycle": cycle, "seed": seed, "key": f"{variant}{cycle}{seed}"}
    found = _at(values, variant, cycle, seed)
    if found is None:
        return Reported(**known)
    if isinstance(found, str):
        return Reported(**known, density=(1 - p) ** cycle, failure=FAILURE)
    rate = _at(dynamic, variant, cycle, seed)
    kind = {"static": 0.0, "dynamic": 0.0 if rate is None else rate / 100}
    after = None if rate is None else {"unit": kind, "channel": {**kind, "dynamic": kind["dynamic"] / 10}}
    return Reported(**known, density=(1 - p) ** cycle, accuracy=found / 100, after=after)


def _at(values: Values, variant: str, cycle: int, seed: int) -> Any:
    own = values.get((variant, cycle), ())
    return own[seed] if seed < len(own) else None
