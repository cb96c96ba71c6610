"""What counts as a dead neuron, and which activations are looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..core.errors import InputError, unknown
from ..core.prunable import Patterns, several

THRESHOLD = 1e-2  # below which an output of GELU, SiLU, Mish or Hardswish counts as 0


@dataclass(frozen=True)
class Counting:
    """How dead neurons are counted; `dead_neurons` says what each option means.

    >>> Counting(exclude="*#2").chosen("layer1.act#2")
    False
    """

    threshold: float = THRESHOLD
    share: float = 1.0  # of a map that must be dead for its channel to be
    include: Patterns = None
    exclude: Patterns = None
    batch_statistics: bool = False
    companions: bool = False

    def __post_init__(self) -> None:
        if not (self.threshold > 0 and math.isfinite(self.threshold)):
            raise InputError(f"threshold = {self.threshold}: a number above 0 is needed")
        if not 0 < self.share <= 1:
            raise InputError(f"share = {self.share}: the part of a map that must be dead is above 0 and at most 1")

    def chosen(self, name: str) -> bool:
        """Whether an activation of this name is counted."""
        return (not self.include or _fits(name, self.include)) and not _fits(name, self.exclude)

    def check_patterns(self, names: Sequence[str]) -> None:
        """Refuses a pattern that fits none of the activations, and patterns that leave none."""
        for role, patterns in (("include", self.include), ("exclude", self.exclude)):
            for pattern in several(patterns):
                if not any(_fits(name, pattern) for name in names):
                    raise unknown(f"activation in {role}", pattern, names)
        if not any(map(self.chosen, names)):
            raise InputError("include and exclude leave no activation")


def _fits(name: str, patterns: Patterns) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in several(patterns))
