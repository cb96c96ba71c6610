"""Which engine trains what, and how many networks at once."""

from __future__ import annotations

import time

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

MOST_FUSED = 32  # more gain little
CANDIDATES = (1, 2, 4, 8, 16)  # lanes of a CUDA graph that are tried
STEPS_TO_TIME = 12
WORTH_IT = 1.05  # times the speed of half as many lanes
SHARE_OF_MEMORY = 0.8


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
        self._lanes: dict[Training, int] = {}
        self._limits: dict[Training, int] = {}
        self._said: set[str] = set()

    def room(self, training: Training, dataset: Dataset) -> int:
        """How many networks go together."""
        room = self._wanted(training, dataset)
        return min(room, self._limits.get(training, room))

    def limit(self, training: Training, most: int) -> None:
        """Notes that more networks of a training do not fit into memory."""
        self._limits[training] = most

    def _wanted(self, training: Training, dataset: Dataset) -> int:
        kinds = self._kinds(training, dataset)
        if not kinds:
            return self.most or 1
        if self.most is not None:
            return self.most
        if kinds[0] is Fused:
            return MOST_FUSED
        if training not in self._lanes:
            self._lanes[training] = self._calibrated(training, dataset)
        return self._lanes[training]

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

    def _calibrated(self, training: Training, dataset: Dataset) -> int:
        """Doubles the lanes as long as memory allows and the speed is worth it."""
        best, fastest, used = 1, 0.0, 0
        feed = training.feed(0, dataset=dataset)
        case = Case(feed, training.build(len(feed.classes), feed.channels).state_dict())
        total = torch.cuda.get_device_properties(self.device).total_memory
        for lanes in CANDIDATES:
            if used * 2 > SHARE_OF_MEMORY * total:
                break
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
            engine = self.engine(training, dataset, lanes)
            if not isinstance(engine, Captured):
                return 1
            try:
                speed = self._speed(engine, lanes, case)
            except torch.cuda.OutOfMemoryError:
                break
            except EngineUnavailable as error:
                self.refuse(training, type(engine), str(error))
                return self._calibrated(training, dataset)
            finally:
                self._kept = None  # it was captured outside a training, without its choice of kernels
            used = torch.cuda.max_memory_reserved(self.device)
            if speed < WORTH_IT * fastest:
                break
            best, fastest = lanes, speed
        self.tell(f"{training.network.name}: {best} networks at once are fastest here")
        return best

    def _speed(self, engine: Captured, lanes: int, case: Case) -> float:
        """Networks times steps a second."""
        own = [engine.lane(case) for _ in range(lanes)]
        for lane in own:
            lane.prepare(0, torch.full((case.feed.steps,), 1e-4, dtype=torch.float64))
            lane.begin()
        engine.run(own, 1)  # which captures
        torch.cuda.synchronize(self.device)
        since = time.perf_counter()
        engine.run(own, STEPS_TO_TIME)
        torch.cuda.synchronize(self.device)
        return lanes * STEPS_TO_TIME / (time.perf_counter() - since)
