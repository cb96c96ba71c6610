"""What some seeds say: intervals, paired differences and tests. Pure functions of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..experiment.findings import Spread
from .student import half_width, two_sided

CONFIDENCE = 0.95
LEVEL = 1 - CONFIDENCE
MOST_FLIPPED = 16  # seeds up to which all sign patterns are gone through
ROUNDING = 1e-12  # of accuracies in [0, 1]: differences below are those of floating-point sums


class Interval(NamedTuple):
    """From low to high, both included."""

    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether it lies to one side of a value."""
        return not self.low <= value <= self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether they have a point in common.

        >>> Interval(0, 2).overlaps(Interval(2, 3)), Interval(0, 1).overlaps(Interval(2, 3))
        (True, False)
        """
        return self.low <= other.high and other.low <= self.high


def interval(spread: Spread) -> Interval | None:
    """The 95 % confidence interval of a mean (Student's t); None with fewer than two values."""
    if spread.mean is None or spread.std is None:
        return None
    half = half_width(spread.std, spread.seeds, CONFIDENCE)
    return Interval(spread.mean - half, spread.mean + half)


@dataclass(frozen=True)
class Paired:
    """Differences over the seeds that both have.

    `interval` is the 95 % confidence interval of the mean difference and `p` the two-sided p-value of the paired t
    test, both None with fewer than two seeds, or if all differences are equal: then nothing is known of their spread.
    `p_exact` is that of the sign-flip test, None with fewer than two seeds or more than 16. `p_holm` is `p` corrected
    for all `comparisons` that were made together.
    """

    values: Mapping[int, float]  # by seed
    mean: float | None
    std: float | None
    interval: Interval | None
    p: float | None
    p_exact: float | None
    p_holm: float | None = None
    comparisons: int = 1

    @property
    def seeds(self) -> int:
        """How many both have."""
        return len(self.values)

    @property
    def direction(self) -> int:
        """1 or -1 where the interval lies above or below 0, else 0."""
        if self.interval is None or not self.interval.excludes(0.0):
            return 0
        return 1 if self.interval.low > 0 else -1

    @property
    def shown(self) -> int:
        """The direction, unless Holm's correction takes it back."""
        return self.direction if self.p_holm is None or self.p_holm <= LEVEL else 0

    @property
    def verdict(self) -> str:
        """In words: "higher" and "lower" need an interval without 0, and say where Holm's correction takes it back."""
        if self.seeds < 2:
            return "one seed: no test" if self.seeds else "no common seed"
        if self.interval is None:
            return "equal in every seed" if abs(self.mean or 0.0) <= ROUNDING else "the same in every seed: no test"
        if not self.direction:
            return "no difference shown"
        word = "higher" if self.direction > 0 else "lower"
        return word if self.shown else f"{word}, not after Holm"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mean": self.mean,
            "std": self.std,
            "seeds": self.seeds,
            "values": {str(seed): value for seed, value in self.values.items()},
            "interval": None if self.interval is None else list(self.interval),
            "p": self.p,
            "p_exact": self.p_exact,
            "p_holm": self.p_holm,
            "comparisons": self.comparisons,
            "verdict": self.verdict,
        }


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired:
    """`first` minus `second`, over the seeds that both have.

    >>> found = paired({0: 0.93, 1: 0.92, 2: 0.95}, {0: 0.90, 1: 0.91, 2: 0.91, 3: 0.5})
    >>> round(found.mean, 4), found.seeds, found.p_exact, found.verdict
    (0.0267, 3, 0.25, 'no difference shown')
    """
    values = {seed: first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())}
    spread = Spread.of(list(values.values()))
    if spread.mean is None or spread.std is None:
        return Paired(values, spread.mean, None, None, None, None)
    exact = sign_flip(list(values.values()))
    if spread.std <= ROUNDING:
        return Paired(values, spread.mean, 0.0, None, None, exact)
    t = spread.mean / (spread.std / sqrt(spread.seeds))
    return Paired(values, spread.mean, spread.std, interval(spread), two_sided(t, spread.seeds - 1), exact)


def sign_flip(differences: Sequence[float]) -> float | None:
    """The share of all ± patterns of the differences whose mean is at least as far from 0 as theirs.

    It can be no smaller than 2 / 2ⁿ: with 5 seeds 0.0625. None for fewer than 2 or more than 16 values.

    >>> sign_flip([1.0, 2.0, 3.0])
    0.25
    """
    count = len(differences)
    if not 2 <= count <= MOST_FLIPPED:
        return None
    flipped = (np.arange(2 ** (count - 1))[:, None] >> np.arange(count)) & 1  # the last never is, by symmetry
    patterns = 1 - 2.0 * flipped
    means = np.abs(patterns @ np.array(differences)) / count
    return float(np.mean(means >= abs(fmean(differences)) - ROUNDING))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order of the p-values.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=lambda at: values[at])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = highest
    return adjusted


def together(family: Sequence[Paired]) -> list[Paired]:
    """The same comparisons, each knowing how many were tested and its p-value after Holm's correction."""
    tested = [found.p for found in family if found.p is not None]
    adjusted = iter(holm(tested))
    return [replace(one, comparisons=len(tested), p_holm=None if one.p is None else next(adjusted)) for one in family]
