"""Whose turn it is: which of the trainings that are ready go together next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from ..training import Training
from .steps import Step, Train

Shape = tuple[Training, int, int | None]
Room = Callable[[Training], int | None]  # how many go together; None where that is not known


class Turns:
    """Chooses packs of one shape, large ones first. Each time that others go first a shape's trainings count for more,
    so that few of a rare shape do not wait until all others are done.
    """

    def __init__(self) -> None:
        self._passed_over: Counter[Shape] = Counter()

    def full(self, ready: Sequence[Step], room: Room) -> Sequence[Train]:
        """A pack that need not wait for others to join: it is full, or has been passed over for as long as it would
        take to fill it with what there is.
        """
        groups = _by_shape(ready)
        shares = {shape: self._weight(shape, group) / (room(shape[0]) or math.inf) for shape, group in groups.items()}
        enough = [shape for shape, share in shares.items() if share >= 1]
        return self._turn(max(enough, key=shares.__getitem__), groups, room) if enough else []

    def largest(self, ready: Sequence[Step], room: Room) -> Sequence[Train]:
        """The largest pack that there is."""
        groups = _by_shape(ready)
        return self._turn(max(groups, key=lambda s: self._weight(s, groups[s])), groups, room) if groups else []

    def _weight(self, shape: Shape, group: Sequence[Train]) -> int:
        return len(group) * (1 + self._passed_over[shape])

    def _turn(self, shape: Shape, groups: dict[Shape, list[Train]], room: Room) -> Sequence[Train]:
        self._passed_over.update(groups.keys() - {shape})
        del self._passed_over[shape]
        group = groups[shape]
        return group[: room(shape[0])] if len(group) > 1 else group


def _by_shape(ready: Sequence[Step]) -> dict[Shape, list[Train]]:
    groups: dict[Shape, list[Train]] = defaultdict(list)
    for step in ready:
        if isinstance(step, Train):
            groups[step.shape].append(step)
    return groups
