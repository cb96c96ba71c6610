"""The random numbers of epochs, drawn in a thread before they are needed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from ..data import Draws, draws

_thread = ThreadPoolExecutor(1, thread_name_prefix="draws")


class Ahead:
    """The draws of one seed's epochs over `n` images: while one epoch is trained, the next one's are drawn."""

    def __init__(self, seed: int, n: int) -> None:
        self.seed, self.n = seed, n
        self._next: tuple[int, Future[Draws]] | None = None

    def expect(self, epoch: int) -> None:
        """Begins to draw for an epoch."""
        self._next = epoch, _thread.submit(draws, self.seed, epoch, self.n)

    def take(self, epoch: int) -> Draws:
        """What belongs to an epoch, and begins with the next."""
        known = self._next
        drawn = known[1].result() if known is not None and known[0] == epoch else draws(self.seed, epoch, self.n)
        self.expect(epoch + 1)
        return drawn
