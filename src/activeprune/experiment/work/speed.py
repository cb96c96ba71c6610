"""How long trainings take: from what was measured on this machine before, or by timing a few steps."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median

import numpy as np
import torch

from ...data import Dataset, Feed, Part
from ...machine import cores, described, one_thread
from ...training import Training
from ...training.choosing import Engines
from ...training.compiled import worth_compiling
from ...training.engine import EVALUATED
from ...training.loop import same_kernels
from ...training.member import Member
from ...training.settings import OF_THE_SPEED
from ..plan.steps import identity
from ..store import Store
from ..store.provenance import Provenance

SECONDS_TO_MEASURE = 3.0
FEWEST_STEPS = 2


@dataclass(frozen=True)
class Speed:
    """Seconds that a step takes, its share of evaluation included, and steps in an epoch.

    Of trainings side by side `seconds` is each one's share; `packs` says how long a step of all took, by their number.
    Fewer than were ever seen are taken to be no faster than these.
    """

    seconds: float
    steps: int
    packs: Mapping[int, float] = field(default_factory=dict)

    @property
    def of_one(self) -> bool:
        """Whether it was measured of a network alone, too."""
        return not self.packs or 1 in self.packs

    @property
    def most(self) -> int:
        """How many were trained side by side."""
        return max(self.packs, default=1)

    def together(self, count: int) -> float:
        """Seconds of a step of so many networks side by side, at most `most`: measured, or between what was.

        >>> Speed(0.1, 100, {1: 0.4, 8: 1.1}).together(2)
        0.5
        """
        known = self.packs or {1: self.seconds}
        sizes = sorted(known)
        return float(np.interp(count, sizes, [known[size] for size in sizes]))

    def in_packs(self, count: int) -> float:
        """Seconds of a step of so many networks, one pack after the other."""
        packs, rest = divmod(count, self.most)
        return packs * self.together(self.most) + (self.together(rest) if rest else 0.0)

    def steps_of(self, training: Training, first: int = 0, last: int | None = None) -> int:
        """Steps of a training from epoch `first` on, until before epoch `last`."""
        end = training.epochs.steps(self.steps)
        return (end if last is None else min(end, last * self.steps)) - first * self.steps


class Speeds:
    """Of this machine, as far as they are known: by what takes time, and by engine."""

    def __init__(self, known: Mapping[tuple[str, str], Speed] | None = None) -> None:
        self._known = dict(known or {})

    def of(self, training: Training) -> Speed | None:
        """With the fastest engine that may train it, if that is known of others whose steps take the same time."""
        wanted, found = alike(training), []
        for (of, engine), speed in self._known.items():
            if of == wanted and engine != _ways(training, speed)[1]:
                found.append(speed)
        return min(found, key=lambda speed: speed.seconds, default=None)

    def add(self, training: Training, speed: Speed) -> None:
        """Notes what was measured with whichever engine trains it, beside what is known of other packs."""
        before = self.of(training)
        packs = {**before.packs, **speed.packs} if before else speed.packs
        self._known[alike(training), _ways(training, speed)[0]] = replace(speed, packs=packs)


def _ways(training: Training, speed: Speed) -> tuple[str, str]:
    """Of the two engines that take any network, the one for a training of this length, and the one that is not."""
    return ("compiled", "captured") if worth_compiling(training, speed.steps) else ("captured", "compiled")


def alike(training: Training) -> str:
    """The same for trainings whose steps, with the same engine, take the same time."""
    settings = {key: value for key, value in identity(training).items() if key in OF_THE_SPEED}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def known(store: Store, device: torch.device) -> Speeds:
    """Of trainings in the store that were computed on such a machine: the median of those that are alike, for packs of
    each size.
    """
    with one_thread(device):  # as trainings are
        here = described(device)
    shares: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    steps: dict[tuple[str, str], int] = {}
    for entry in store.list():
        how = Provenance.of(store.provenance(entry.key))
        if how.machine == here and how.speed is not None:
            of = how.speed.of, how.engine or "eager"
            together = 1 if of[1] == "eager" else how.pack or 1  # there, networks take turns
            shares[of][together].append(how.speed.seconds_per_step)
            steps[of] = how.speed.steps_per_epoch
    return Speeds({of: _summed_up(by_pack, steps[of]) for of, by_pack in shares.items()})


def _summed_up(shares: Mapping[int, list[float]], steps: int) -> Speed:
    every = [share for found in shares.values() for share in found]
    return Speed(median(every), steps, {pack: pack * median(found) for pack, found in shares.items()})


def measured(training: Training, engines: Engines, planned: int = 1) -> Speed:
    """The speed of a few steps and of a part of an evaluation, timed now: of networks side by side where so many are
    `planned` and an engine can do that. Needs the data, and changes nothing.
    """
    with one_thread(engines.device), same_kernels():  # as in a run
        dataset = training.dataset()
        paces = engines.paces(training, dataset, planned)
        if not paces:
            return _alone(training, dataset, engines.device)
        steps = training.feed(0, dataset=dataset).steps
        packs = {count: pace.step + pace.evaluation / steps for count, pace in paces.items()}
        most = max(packs)
        return Speed(packs[most] / most, steps, packs)


def _alone(training: Training, dataset: Dataset, device: torch.device) -> Speed:
    """Of the plain loop."""
    feed = training.feed(0, device, cores(), dataset)
    model = training.build(len(feed.classes), feed.channels)
    member = Member(training, model, model.state_dict(), None, device)
    member.step(*next(feed.training(0)))  # the first one also loads and chooses kernels
    since, steps = time.perf_counter(), 0
    for x, y in islice(feed.training(1), max(FEWEST_STEPS, feed.steps - 1)):
        float(member.step(x, y)[0])  # waits for the device
        steps += 1
        if steps >= FEWEST_STEPS and time.perf_counter() - since > SECONDS_TO_MEASURE:
            break
    per_step = (time.perf_counter() - since) / steps
    return Speed(per_step + _evaluation(member, feed) / feed.steps, feed.steps)


def _evaluation(member: Member, feed: Feed) -> float:
    """Seconds that an evaluation of all validation and test images takes, from the first batches of each."""
    return sum(_seconds_of(member, feed, part) for part in EVALUATED)


def _seconds_of(member: Member, feed: Feed, part: Part) -> float:
    images = feed.sizes[part]
    batches = list(islice(feed.evaluation(part), FEWEST_STEPS))
    since = time.perf_counter()
    member.score(batches)
    return (time.perf_counter() - since) * images / sum(len(y) for _, y in batches)
