"""Which variants of a run are compared with which, seed by seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from ..experiment.plan.study import WITHOUT_AP, Study, Variant, rewinds
from .statistics import Paired, paired, together
from .trainings import Reported, Trainings, Value


@dataclass(frozen=True)
class Comparison:
    """A variant minus another one at a cycle.

    It is `fair` if both start alike, and so are trained equally long, at the same learning rates and λ; else `unfair`
    says what differs. `relative` is the difference of the means over the other's mean.
    """

    variant: str
    against: str
    cycle: int
    densities: tuple[float | None, float | None]
    paired: Paired
    relative: float | None
    unfair: str

    @property
    def fair(self) -> bool:
        """Whether nothing differs but what is compared."""
        return not self.unfair

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        fields = {"variant": self.variant, "against": self.against, "cycle": self.cycle, "fair": self.fair}
        return {**fields, "density": self.densities[0], "relative": self.relative, **self.paired.as_dict()}


def pairs(study: Study) -> list[tuple[Variant, Variant]]:
    """Each AP variant and `plain`, and the fair pairs, as far as they are run."""
    return [
        (variant, against)
        for variant in study.variants
        for against in WITHOUT_AP
        if variant not in WITHOUT_AP
        and against in study.variants
        and (against == "plain" or not unfair(study, variant, against, 1))
    ]


def unfair(study: Study, variant: Variant, against: Variant, cycle: int) -> str:
    """What differs between two variants at a cycle beside what is pruned; nothing where the comparison is fair."""
    return "; ".join(_differing(study, variant, against, cycle))


def _differing(study: Study, variant: Variant, against: Variant, cycle: int) -> Iterator[str]:
    chain = study.which_chain
    same_rates = study.retraining is study.training or against != "plain" or rewinds(chain, against)
    if rewinds(chain, variant) != rewinds(chain, against):
        if chain == "reinit":
            whose = "the paper's own comparison; " if same_rates else ""
            yield (
                f"{whose}under chain reinit it sets one training from the start against "
                "two in a row, the second of which goes on from where the first ended"
            )
        else:
            yield "not the same start, since one of the two goes on from trained weights"
    elif (chain, variant) == ("continue", "ap_pro") and cycle > 1:
        yield f"from cycle 2 on not the same start, which of {variant} is always the first weights"
    if variant == "ap_lite_literal":
        yield "not the same λ"
    if not same_rates:
        yield f"not the same learning rates: {against} is retrained with {study.retrain}"


def accuracy(training: Reported) -> float | None:
    """On test images, if it is there."""
    return training.accuracy


def comparisons(run: Trainings, value: Value = accuracy) -> list[Comparison]:
    """All that a run allows, below λ = 100 %, with Holm's correction for their number."""
    cycles = [cycle for cycle in run.cycles if cycle]
    made = [compared(run, *pair, cycle, value) for pair in pairs(run.study) for cycle in cycles]
    tested = together([comparison.paired for comparison in made])
    return [replace(comparison, paired=found) for comparison, found in zip(made, tested, strict=True)]


def compared(run: Trainings, variant: Variant, against: Variant, cycle: int, value: Value) -> Comparison:
    """One comparison, by seed."""
    first, second = (by_seed(run, which, cycle, value) for which in (variant, against))
    found = paired(first, second)
    return Comparison(
        variant=variant,
        against=against,
        cycle=cycle,
        densities=(run.density(variant, cycle), run.density(against, cycle)),
        paired=found,
        relative=relative(found, second),
        unfair=unfair(run.study, variant, against, cycle),
    )


def relative(found: Paired, base: dict[int, float]) -> float | None:
    """The mean difference as a share of the mean that it is a difference from, as the paper counts improvements."""
    if found.mean is None or not (below := fmean(base[seed] for seed in found.values)):
        return None
    return found.mean / below


def by_seed(run: Trainings, variant: str, cycle: int, value: Value = accuracy) -> dict[int, float]:
    """Where there is one."""
    return {seed: found for seed, one in run.of(variant, cycle).items() if (found := value(one)) is not None}


def effort_dict(run: Trainings) -> dict[str, Any]:
    """Trainings and seconds by variant and in all, for JSON."""
    variants = {variant: asdict(effort) for variant, effort in run.effort.items()}
    return {"variants": variants, "in_all": asdict(run.in_all), "machines": list(run.machines)}
