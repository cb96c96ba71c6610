"""How device time was spent where trainings went together: in packs, in their steps, and between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .trainings import Work

PAUSE = 600.0  # seconds without any training: what comes then is another sitting
ROUNDED = 2.0  # seconds by which two packs, one after the other, may seem to overlap, since ends are told in whole ones


@dataclass(frozen=True)
class Pack:
    """Trainings that went together on one device; times in seconds since 1970."""

    trainings: int
    images: int  # in training, of all of them
    began: float
    ended: float
    in_steps: float  # seconds; the rest is evaluation, probes, and what was measured beside it


@dataclass(frozen=True)
class Sitting:
    """Packs one after the other, with pauses that are short."""

    packs: tuple[Pack, ...]

    @property
    def _began(self) -> float:
        return min(pack.began for pack in self.packs)

    @property
    def began(self) -> datetime:
        """In UTC."""
        return datetime.fromtimestamp(self._began, UTC)

    @property
    def seconds(self) -> float:
        """From the first training to the end of the last one."""
        return self.packs[-1].ended - self._began

    @property
    def trainings(self) -> int:
        """How many there were."""
        return sum(pack.trainings for pack in self.packs)

    @property
    def images_per_second(self) -> float:
        """In training, everything else included in the time."""
        return sum(pack.images for pack in self.packs) / self.seconds

    @property
    def in_packs(self) -> float:
        """The share of the time with a pack in training, or with several, of processes side by side."""
        covered, until = 0.0, self._began
        for pack in sorted(self.packs, key=lambda one: one.began):
            beside = until - pack.began
            covered += max(0.0, pack.ended - pack.began - (beside if beside > ROUNDED else 0.0))
            until = max(until, pack.ended)
        return min(1.0, covered / self.seconds)

    @property
    def in_steps(self) -> float:
        """The share of the time that training steps took; those of processes side by side add up."""
        return sum(pack.in_steps for pack in self.packs) / self.seconds


def sittings(work: Iterable[Work]) -> list[Sitting]:
    """The packs of a run, in order; trainings that were alone in their process are not counted."""
    found: list[list[Pack]] = []
    for pack in sorted(packs(work), key=lambda one: one.ended):
        if not found or pack.began - found[-1][-1].ended > PAUSE:
            found.append([])
        found[-1].append(pack)
    return [Sitting(tuple(group)) for group in found]


def packs(work: Iterable[Work]) -> list[Pack]:
    """Members of a pack have the same share of its seconds, and the same speed."""
    groups: dict[tuple[int, float | None, float], list[Work]] = {}
    for one in work:
        if one.pack and one.images_per_second and one.finished:
            groups.setdefault((one.pack, one.seconds, one.images_per_second), []).append(one)
    return [_pack(group) for group in groups.values()]


def _pack(members: Sequence[Work]) -> Pack:
    """All of it, also where a member belongs to another run."""
    one = members[0]
    ended = min(datetime.fromisoformat(member.finished).timestamp() for member in members)
    images = one.images * one.pack
    took = (one.seconds or 0.0) * one.pack
    return Pack(one.pack, images, ended - took, ended, images / one.images_per_second)
