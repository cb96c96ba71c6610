"""The trainings of a run: what is known of those that are reported, the work that they rest on, and how many a
reported network takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, cast

from ..experiment.findings import GRANULARITIES, PARTS, Row, dead_of, how_failed, summaries
from ..experiment.plan import behind, is_whole_training
from ..experiment.plan.chains import cells, planned_density
from ..experiment.plan.study import Study, Variant

KINDS = tuple(product(GRANULARITIES, PARTS))  # of dead neurons
Rates = dict[str, Any]  # of `DeadNeurons.as_dict`


@dataclass(frozen=True)
class Reported:
    """A training that a table reports, and all that is known of it.

    Accuracies are fractions. `accuracy` is None where it is missing or where the training failed; then `failure` says
    how. `before` and `after` are dead-neuron rates where it started and where it ended, `probes` those on the way.
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
    probes: tuple[Mapping[str, Any], ...] = ()
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
        row = {name: getattr(self, name) for name in ("variant", "cycle", "seed", "density", "accuracy", "failure")}
        return row | dead_of({when: getattr(self, when) for when in ("before", "after") if when in self.keys})


Value = Callable[[Reported], float | None]  # of a training, where it is known


@dataclass(frozen=True)
class Work:
    """A whole training, reported or not, and the variants whose numbers rest on it.

    In a pack, `seconds` are its share, and `images_per_second` are those of all, in training steps alone.
    """

    key: str  # in the store
    variants: tuple[str, ...]
    seconds: float | None = None  # that it took; None while it is not done
    pack: int = 0  # how many trainings went together; 0 where it was alone in its process, or they took turns
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
class Trainings:
    """Of a run: those that it reports, by cell and seed, and the work that these rest on."""

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
        """λ of a cycle, that of the first variant: as it is, or as it will be but for rounding."""
        first = self.study.variants[0]
        alike = (
            variant for variant in self.study.variants if self.planned(variant, cycle) == self.planned(first, cycle)
        )
        known = (self.density(variant, cycle) for variant in alike)
        return next((one for one in known if one is not None), self.planned(first, cycle))

    def planned(self, variant: str, cycle: int) -> float:
        """λ of a cell as it will be, but for rounding; equal where variants prune equally much."""
        return planned_density(self.study, cast(Variant, variant), cycle)

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

    @cached_property
    def cycles(self) -> tuple[int, ...]:
        """All that are reported, the dense network's 0 among them."""
        return tuple(sorted({training.cycle for training in self.trainings}))

    def as_dict(self) -> dict[str, Any]:
        """The study and its cells, for JSON."""
        cells = [cell.as_dict() for cell in summaries(training.row for training in self.trainings)]
        return {"study": self.study.model_dump(mode="json"), "cells": cells}


def trainings_to(study: Study) -> dict[tuple[str, int], int]:
    """By variant and cycle, for one seed: from the dense network to the training that is reported, both counted.

    What another λ or another variant needs besides is no part of it, since who wants one pruned network does without.

    >>> from activeprune.experiment.plan.reading import read_study
    >>> study = read_study("table1", {"chain": "rewind", "cycles": 3, "report_cycles": [1, 3]})
    >>> found = trainings_to(study)
    >>> found["plain", 0], found["plain", 1], found["ap_lite", 3]
    (1, 2, 4)
    """
    data = study.training.data.model_copy(update={"path": None})  # whose images they are does not matter
    training = study.training.model_copy(update={"data": data})
    one = study.model_copy(update={"training": training, "seeds": study.seeds[:1]})
    return {
        (cell.variant, cell.cycle): sum(map(is_whole_training, behind([cell.training]).values())) for cell in cells(one)
    }
