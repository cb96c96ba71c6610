"""Which variants of a run are compared with which, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from ..experiment.study import WITHOUT_AP
from .gathering import Gathered
from .statistics import Paired, paired, together

FAIR = (("ap_lite", "plain_rewind"), ("ap_pro", "plain_rewind"), ("no_rewind", "plain"))  # same start, same epochs


@dataclass(frozen=True)
class Comparison:
    """A variant minus another one at a cycle. `relative` is the difference of the means over the other's mean."""

    variant: str
    against: str
    cycle: int
    densities: tuple[float | None, float | None]
    paired: Paired
    relative: float | None

    @property
    def fair(self) -> bool:
        """Whether both start alike and are trained equally long."""
        return (self.variant, self.against) in FAIR

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told = {"variant": self.variant, "against": self.against, "cycle": self.cycle, "fair": self.fair}
        return {**told, "density": self.densities[0], "relative": self.relative, **self.paired.as_dict()}


def pairs(variants: Iterable[str]) -> list[tuple[str, str]]:
    """Each AP variant and `plain`, and the fair pairs, as far as they were run.

    >>> pairs(["plain", "plain_rewind", "ap_lite"])
    [('ap_lite', 'plain'), ('ap_lite', 'plain_rewind')]
    """
    run = list(variants)
    own = [variant for variant in run if variant not in WITHOUT_AP]
    return [
        (variant, against)
        for variant in own
        for against in WITHOUT_AP
        if against in run and (against == "plain" or (variant, against) in FAIR)
    ]


def comparisons(run: Gathered) -> list[Comparison]:
    """All that a run allows, below λ = 100 %, with Holm's correction for their number."""
    cycles = [cycle for cycle in run.cycles if cycle]
    made = [compared(run, *pair, cycle) for pair in pairs(run.study.variants) for cycle in cycles]
    tested = together([comparison.paired for comparison in made])
    return [replace(comparison, paired=found) for comparison, found in zip(made, tested, strict=True)]


def compared(run: Gathered, variant: str, against: str, cycle: int) -> Comparison:
    """One comparison of accuracies."""
    first, second = accuracies(run, variant, cycle), accuracies(run, against, cycle)
    found = paired(first, second)
    return Comparison(
        variant=variant,
        against=against,
        cycle=cycle,
        densities=(run.density(variant, cycle), run.density(against, cycle)),
        paired=found,
        relative=relative(found, second),
    )


def relative(found: Paired, base: dict[int, float]) -> float | None:
    """The mean difference as a share of the mean that it is a difference from, as the paper counts improvements."""
    if found.mean is None or not (below := fmean(base[seed] for seed in found.values)):
        return None
    return found.mean / below


def accuracies(run: Gathered, variant: str, cycle: int) -> dict[int, float]:
    """By seed, where there is one."""
    return {seed: one.accuracy for seed, one in run.of(variant, cycle).items() if one.accuracy is not None}


def effort_dict(run: Gathered) -> dict[str, Any]:
    """Trainings and seconds by variant and in all, for JSON."""
    variants = {variant: asdict(effort) for variant, effort in run.effort.items()}
    return {"variants": variants, "in_all": asdict(run.in_all), "machines": list(run.machines)}
