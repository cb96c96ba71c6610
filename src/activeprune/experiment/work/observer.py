"""Somebody who is told how a run goes."""

from __future__ import annotations

from ...training import Epoch
from ..plan import Todo
from ..plan.steps import Step


class Observer:
    """What an executor tells; this one listens and says nothing."""

    def planned(self, todo: Todo) -> None:
        """What is left to do, each time it has changed."""

    def started(self, step: Step) -> None:
        """A step begins here."""

    def epoch(self, step: Step, epoch: Epoch, epochs: int) -> None:
        """An epoch of a training has ended."""

    def finished(self, step: Step, seconds: float) -> None:
        """A step is in the store."""

    def trouble(self, line: str) -> None:
        """Something was damaged and is computed again, or failed."""

    def close(self) -> None:
        """It is over."""
