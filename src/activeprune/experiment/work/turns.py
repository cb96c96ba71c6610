"""Whose turn it is: which of the trainings that are ready go together next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from ...training import Training
from ..plan.steps import Shape, Step, Train

Room = Callable[[Training], int | None]  # how many go together; None where that is not known


class Turns:
    """Chooses packs of one shape, large ones first. Each time that others go first a shape's trainings count for more,
    so that few of a rare shape do not wait until all others are done.
    """

    def __init__(self) -> None:
        self._passed_over: Counter[Shape] = Counter()

    def full(self, ready: Sequence[Step], room: Room) -> Sequence[Train]:
        """A pack that need not wait for others to join: it is full, or counts as full after a while."""
        packs = _packs(ready, room)
        shares = {shape: self._weight(shape, pack) / (room(shape[0]) or math.inf) for shape, pack in packs.items()}
        return self._turn({shape: share for shape, share in shares.items() if share >= 1}, packs)

    def largest(self, ready: Sequence[Step], room: Room) -> Sequence[Train]:
        """The largest pack that there is."""
        packs = _packs(ready, room)
        return self._turn({shape: self._weight(shape, pack) for shape, pack in packs.items()}, packs)

    def _weight(self, shape: Shape, pack: Sequence[Train]) -> int:
        return len(pack) * (1 + self._passed_over[shape])

    def _turn(self, weights: Mapping[Shape, float], packs: Mapping[Shape, Sequence[Train]]) -> Sequence[Train]:
        if not weights:
            return []
        shape = max(weights, key=weights.__getitem__)
        self._passed_over.update(packs.keys() - {shape})
        del self._passed_over[shape]
        return packs[shape]


def _packs(ready: Sequence[Step], room: Room) -> dict[Shape, Sequence[Train]]:
    """Trainings by shape, no more of each than go together."""
    groups: dict[Shape, list[Train]] = defaultdict(list)
    for step in ready:
        if isinstance(step, Train):
            groups[step.shape].append(step)
    return {shape: group[: room(shape[0])] if len(group) > 1 else group for shape, group in groups.items()}
