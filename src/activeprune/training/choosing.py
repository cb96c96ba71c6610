"""Which engine trains what, and how many networks at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..data import Dataset, Images, Shelf
from .captured import Captured
from .case import Case
from .compiled import Compiled, worth_compiling
from .engine import Eager, Engine, Tell
from .fused.compiling import kernels
from .fused.lanes import Fused, fitting
from .settings import Training
from .unavailable import EngineUnavailable

SHARE_OF_MEMORY = 0.8


@dataclass(frozen=True)
class Trial:
    """Which numbers of networks at once are tried, how many steps of each are timed, and how many times the speed of
    the number before makes another one worth its memory, and the longer wait for the first result.
    """

    numbers: Sequence[int]
    steps: int
    worth: float


TRIAL_FUSED = Trial((4, 8, 16, 32, 64), steps=100, worth=1.01)
TRIAL_CAPTURED = Trial((1, 2, 4, 8, 16), steps=12, worth=1.05)


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
        self._measured: dict[tuple[Training, int], int] = {}
        self._limits: dict[Training, int] = {}
        self._said: set[str] = set()

    def room(self, training: Training, dataset: Dataset, planned: int) -> int:
        """How many networks go together, where so many are to be trained in all."""
        room = self._wanted(training, dataset, planned)
        return min(room, self._limits.get(training, room))

    def limit(self, training: Training, most: int) -> None:
        """Notes that more networks of a training do not fit into memory."""
        self._limits[training] = most

    def _wanted(self, training: Training, dataset: Dataset, planned: int) -> int:
        if self.most is not None:
            return self.most
        if planned == 1 or not self._kinds(training, dataset):
            return 1
        asked = training, planned
        if asked not in self._measured:
            self._measured[asked] = self._calibrated(training, dataset, planned)
        return self._measured[asked]

    def by_rows(self, training: Training, dataset: Dataset) -> bool:
        """Whether the engine has the images itself, and wants of a feed which ones."""
        return bool(self._kinds(training, dataset))

    def engine(self, training: Training, dataset: Dataset, count: int) -> Engine:
        """An engine with room for `count` networks."""
        if self._kept is not None and self._kept[0] == (training, count):
            self._kept[1].clear()
            return self._kept[1]
        self._kept = None  # first, so that its memory is free
        for kind in self._kinds(training, dataset):
            try:
                engine = self._new(kind, training, dataset, count)
            except EngineUnavailable as error:
                self.refuse(training, kind, str(error))
                continue
            self._kept = (training, count), engine
            return engine
        return Eager(training, self.device)

    def refuse(self, training: Training, kind: type, why: str) -> None:
        """Notes that an engine cannot do a training after all."""
        self._kept = None
        self._fitting[training].remove(kind)
        self._say(f"{training.network.name}: {why}; it is trained the slower way")

    def _kinds(self, training: Training, dataset: Dataset) -> list[type]:
        """Engines that may be able to, the fastest first."""
        if training not in self._fitting:
            on_gpu = self.device.type == "cuda" and isinstance(dataset.train, Images)
            self._fitting[training] = [Captured] if on_gpu else []
            if on_gpu and worth_compiling(training, dataset):
                self._fitting[training].insert(0, Compiled)
            if on_gpu and fitting(training, dataset) is not None:
                self._fitting[training].insert(0, Fused)
                try:
                    kernels(self.device)
                except EngineUnavailable as error:  # an old GPU, or a compiler that is not there
                    self.refuse(training, Fused, str(error))
        return list(self._fitting[training])

    def _new(self, kind: type, training: Training, dataset: Dataset, count: int) -> Fused | Captured:
        if self._shelf is None or self._shelf.dataset is not dataset:
            self._shelf = Shelf(dataset, self.device)
        if kind is Fused:
            return Fused(training, self._shelf, self.device, count)
        engine: Captured = kind(training, self._shelf, self.device, self._say)
        if kind is Compiled:
            self._say(f"{training.network.name}: compiled before its first step, which takes one to three minutes")
        return engine

    def _say(self, line: str) -> None:
        """Once: the next engine may have the same to say."""
        if line not in self._said:
            self._said.add(line)
            self.tell(line)

    def _calibrated(self, training: Training, dataset: Dataset, planned: int) -> int:
        """More and more networks at once, as long as memory allows and the speed is worth it."""
        feed = training.feed(0, dataset=dataset)
        case = Case(feed, training.build(len(feed.classes), feed.channels).state_dict())
        kind = self._kinds(training, dataset)[0]
        trial = TRIAL_FUSED if kind is Fused else TRIAL_CAPTURED

        def speed(count: int) -> float | None:
            _begin_to_count_memory(self.device)
            try:
                engine = self.engine(training, dataset, count)
                if type(engine) is kind:
                    return _speed(engine, count, case, trial.steps)
            except torch.cuda.OutOfMemoryError:
                return None
            except EngineUnavailable as error:
                self.refuse(training, kind, str(error))
            finally:
                self._kept = None  # it was captured outside a training, without its choice of kernels
            raise EngineUnavailable("refused")

        try:
            best = fastest(trial, planned, speed, lambda: _memory_holds_twice(self.device))
        except EngineUnavailable:  # the next kind has other numbers, or there is none
            return self._wanted(training, dataset, planned)
        self.tell(f"{training.network.name}: {best} networks at once are fastest here")
        return best


def fastest(
    trial: Trial, planned: int, speed: Callable[[int], float | None], holds_twice: Callable[[], bool] = lambda: True
) -> int:
    """The number of networks from which on more are not worth it; `speed` is None where memory does not hold so many.

    Numbers of which already half are all that are `planned` are not tried.

    >>> fastest(Trial((4, 8, 16, 32), 12, worth=1.05), 100, {4: 400, 8: 600, 16: 700, 32: 720}.get)
    16
    """
    best, before = 1, 0.0
    for number in trial.numbers:
        if number >= 2 * planned or (before and not holds_twice()):
            break
        found = speed(number)
        if found is None or found < trial.worth * before:
            break
        best, before = number, found
    return best


def _speed(engine: Engine, count: int, case: Case, steps: int) -> float:
    """Networks times steps a second at best, once these and an evaluation, which needs memory, too, are captured."""
    lanes = [engine.lane(case) for _ in range(count)]
    steps = min(steps, case.feed.steps)
    seconds: list[float] = []
    while len(seconds) < 3:
        for lane in lanes:
            lane.prepare(0, torch.full((case.feed.steps,), 1e-4, dtype=torch.float64))
            lane.begin()
        since = time.perf_counter()
        engine.run(lanes, steps)
        lanes[0].end()  # which waits for the device
        seconds.append(time.perf_counter() - since)
        if len(seconds) == 1:  # which is that of capturing
            engine.score(lanes)
    return count * steps / min(seconds)


def _begin_to_count_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _memory_holds_twice(device: torch.device) -> bool:
    """Whether there is room for twice of what was in use at most since it was begun to count."""
    if device.type != "cuda":
        return True
    total = torch.cuda.get_device_properties(device).total_memory
    return 2 * torch.cuda.max_memory_reserved(device) <= SHARE_OF_MEMORY * total
