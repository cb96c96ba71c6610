"""The random numbers of epochs, drawn in a thread before they are needed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from .augment import Draws, draws

MOST_KEPT = 8  # epochs of one seed: those that several trainings are in, their next ones, and the next training's first

_thread = ThreadPoolExecutor(1, thread_name_prefix="draws")


class Ahead:
    """The draws of one seed's epochs over `n` images, for all trainings of that seed."""

    def __init__(self, seed: int, n: int) -> None:
        self.seed, self.n = seed, n
        self._begun: dict[int, Future[Draws]] = {}
        self._latest: int | None = None
        self._lock = Lock()

    def expect(self, epoch: int) -> None:
        """Begins to draw for an epoch."""
        with self._lock:
            if epoch not in self._begun:
                self._begun[epoch] = _thread.submit(draws, self.seed, epoch, self.n)
            if len(self._begun) > MOST_KEPT:
                del self._begun[next(iter(self._begun))]

    def take(self, epoch: int) -> Draws:
        """What belongs to an epoch, drawn now if nobody expected it. The epoch that was taken before is dropped."""
        with self._lock:
            if self._latest is not None and self._latest != epoch:
                self._begun.pop(self._latest, None)
            self._latest = epoch
            begun = self._begun.get(epoch)
        return draws(self.seed, epoch, self.n) if begun is None else begun.result()
