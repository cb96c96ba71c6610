"""Which engine trains what, and how many networks at once."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from ..core.errors import in_a_line
from ..data import Dataset, Images, Shelf
from .captured import Captured
from .case import Case
from .compiled import Compiled, worth_compiling
from .engine import Eager, Engine, Tell
from .fused.compiling import kernels
from .fused.lanes import Fused, fitting
from .pacing import Pace, Trial, fastest, most_that_can, timed
from .settings import OF_THE_SPEED, Training
from .unavailable import EngineUnavailable

SHARE_OF_MEMORY = 0.8
TRIAL_FUSED = Trial((4, 8, 16, 32, 64), steps=100, worth=1.01)
TRIAL_CAPTURED = Trial((1, 2, 4, 8, 16), steps=12, worth=1.05)

T = TypeVar("T")


class Engines:
    """Engines on one device, the latest kept for the next trainings of its shape.

    `most` networks are trained at once; None: as many as memory holds and measured speed is worth. What an engine
    cannot do, another one does, and `tell` is told why, and what takes long.
    """

    def __init__(self, device: torch.device, most: int | None = None, tell: Tell = lambda line: None) -> None:
        self.device, self.most, self.tell = device, most, tell
        self._shelf: Shelf | None = None
        self._kept: tuple[tuple[Training, int], Fused | Captured] | None = None
        self._fitting: dict[Training, list[type]] = {}
        self._paces: dict[tuple[object, ...], dict[int, Pace | None]] = {}  # of all trainings that are alike
        self._limits: dict[tuple[object, ...], int] = {}
        self._said: set[str] = set()

    def room(self, training: Training, dataset: Dataset, planned: int) -> int:
        """How many networks go together, where so many may be ready at a time."""
        room = self.most or self._by_the_fastest(training, dataset, partial(self._best, training, dataset, planned), 1)
        return min(room, self._limits.get(_settings(training), room))

    def limit(self, training: Training, most: int) -> None:
        """Notes that more networks of a training, or of one that is alike, do not fit into memory."""
        self._limits[_settings(training)] = most

    def paces(self, training: Training, dataset: Dataset, planned: int) -> dict[int, Pace]:
        """How fast it is with each number of networks that was tried, up to the one that goes together; nothing of the
        plain loop.
        """
        return self._by_the_fastest(training, dataset, partial(self._known_paces, training, dataset, planned), {})

    def kind(self, training: Training, dataset: Dataset) -> type:
        """Of the engine that is tried first."""
        return next(iter(self._kinds(training, dataset)), Eager)

    def by_rows(self, training: Training, dataset: Dataset) -> bool:
        """Whether the engine has the images itself, and wants of a feed which ones."""
        return self.kind(training, dataset) is not Eager

    def engine(self, training: Training, dataset: Dataset, count: int) -> Engine:
        """An engine with room for `count` networks."""
        if self._kept is not None and self._kept[0] == (training, count):
            self._kept[1].clear()
            return self._kept[1]
        self._let_go()
        new = partial(self._new, training, dataset, count)
        engine = self._by_the_fastest(training, dataset, new, None)
        if engine is None:
            return Eager(training, self.device)
        self._kept = (training, count), engine
        return engine

    def refuse(self, training: Training, kind: type, why: str) -> None:
        """Notes that an engine cannot do a training after all."""
        self._let_go()
        self._fitting[training].remove(kind)
        self._say_slower(training, why)

    def _let_go(self) -> None:
        """Frees the memory of the engine that was kept, and of those that ran out of it: their errors hold them until
        Python looks for objects that hold each other.
        """
        self._kept = None
        gc.collect()

    def _by_the_fastest(self, training: Training, dataset: Dataset, do: Callable[[type], T], otherwise: T) -> T:
        """What comes of the fastest kind of engine that turns out able to; of the plain loop, something else."""
        while kinds := self._kinds(training, dataset):
            try:
                return do(kinds[0])
            except EngineUnavailable as error:
                why = str(error)
            self.refuse(training, kinds[0], why)  # behind the error, which holds on to the engine
        return otherwise

    def _kinds(self, training: Training, dataset: Dataset) -> list[type]:
        """Engines that may be able to, the fastest first."""
        if training not in self._fitting:
            self._fitting[training] = self._promising(training, dataset) if self.device.type == "cuda" else []
        return list(self._fitting[training])

    def _promising(self, training: Training, dataset: Dataset) -> list[type]:
        """On a GPU, as far as can be told before one is tried."""
        if not isinstance(dataset.train, Images):
            self._say_slower(training, "its images are read from files while it is trained")
            return []
        long = worth_compiling(training, training.feed(0, dataset=dataset).steps)
        kinds: list[type] = [Compiled, Captured] if long else [Captured]
        try:
            if fitting(training, dataset) is not None:
                kernels(self.device)
                return [Fused, *kinds]
        except EngineUnavailable as error:  # other settings, an old GPU, or a compiler that is not there
            self._say_slower(training, str(error))
        return kinds

    def _new(self, training: Training, dataset: Dataset, count: int, kind: type) -> Fused | Captured:
        if self._shelf is None or self._shelf.dataset is not dataset:
            self._shelf = Shelf(dataset, self.device)
        if kind is Fused:
            return Fused(training, self._shelf, self.device, count)
        engine: Captured = kind(training, self._shelf, self.device, self._say)
        if kind is Compiled:
            self._say(f"{training.network.name}: compiled before its first step, which takes up to three minutes")
        return engine

    def _say_slower(self, training: Training, why: str) -> None:
        self._say(f"{training.network.name}: {why}; it is trained the slower way")

    def _say(self, line: str) -> None:
        """Once: the next engine may have the same to say."""
        if line not in self._said:
            self._said.add(line)
            self.tell(line)

    # ---- how many at once

    def _best(self, training: Training, dataset: Dataset, planned: int, kind: type) -> int:
        """With a kind of engine: by a measurement, unless those that are planned are few."""
        trial, known = _trial(kind), self._known(training, kind)
        if planned <= trial.numbers[0]:
            return trial.numbers[0]
        before = len(known)
        pace = partial(self._pace, training, dataset, kind)
        best = fastest(trial, planned, pace, SHARE_OF_MEMORY * _memory(self.device))
        if len(known) > before and known.get(best) is not None:
            self.tell(f"{training.network.name}: {side_by_side(best)} chosen by timing")
        return best

    def _known_paces(self, training: Training, dataset: Dataset, planned: int, kind: type) -> dict[int, Pace]:
        pace = partial(self._pace, training, dataset, kind)
        most = self.most or self._best(training, dataset, planned, kind)
        pace(1)
        best, _ = most_that_can(min(most, max(1, planned)), pace)
        known = sorted(self._known(training, kind).items())
        return {count: found for count, found in known if found is not None and count <= best}

    def _pace(self, training: Training, dataset: Dataset, kind: type, count: int) -> Pace | None:
        """Of so many networks, timed once for all trainings that are alike; None if they cannot be had."""
        known = self._known(training, kind)
        if count not in known:
            self._say(f"{training.network.name}: a few steps are timed first")
            self._let_go()
            feed = training.feed(0, dataset=dataset)
            case = Case(feed, training.build(len(feed.classes), feed.channels).state_dict())
            make = partial(self._new, training, dataset, count, kind)
            try:
                known[count] = timed(make, count, case, _trial(kind).steps, self.device)
            except EngineUnavailable:
                raise
            except Exception as error:  # too little memory, or the network's own, of which its training will tell
                known[count] = None
                self._say(f"{training.network.name}: {side_by_side(count)} could not be timed ({in_a_line(error)})")
            self._let_go()
        return known[count]

    def _known(self, training: Training, kind: type) -> dict[int, Pace | None]:
        return self._paces.setdefault((kind, *_settings(training)), {})


def side_by_side(networks: int) -> str:
    """So many, in words.

    >>> side_by_side(1), side_by_side(8)
    ('one network at a time', '8 networks at once')
    """
    return "one network at a time" if networks == 1 else f"{networks} networks at once"


def _settings(training: Training) -> tuple[object, ...]:
    """The same for trainings whose steps take the same time and memory."""
    return tuple(getattr(training, setting) for setting in OF_THE_SPEED)


def _trial(kind: type) -> Trial:
    return TRIAL_FUSED if kind is Fused else TRIAL_CAPTURED


def _memory(device: torch.device) -> float:
    """Of a GPU, in bytes: what this process has, or could have beside others."""
    if device.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device)
