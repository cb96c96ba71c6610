"""Who computes the steps of a plan: this process, or several that share a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...machine import one_thread
from ..plan import Plan
from ..plan.steps import Step
from ..store import FolderStore
from ..store.leases import Leases
from .compute import Compute
from .helpers import Helpers
from .observer import Observer
from .queue import Outcome, Queue


class Executor(Protocol):
    """Computes what a store lacks of a plan. It decides where and how many at once, never what the result is."""

    def run(self, plan: Plan, observer: Observer) -> Outcome:
        """Works until nothing is left that can be computed."""


@dataclass(frozen=True)
class Local:
    """This process, one step after the other. Others may do the same on the same store."""

    store: FolderStore
    compute: Compute
    after_step: Callable[[], None]

    def run(self, plan: Plan, observer: Observer) -> Outcome:
        """Works until nothing is left that can be computed."""
        with one_thread(self.compute.device), Queue(plan, self.store, Leases(self.store.root), observer) as queue:
            while steps := queue.take():
                for step in steps:
                    self.one(step, queue)
                self.after_step()
            return queue.outcome()

    def one(self, step: Step, queue: Queue) -> None:
        """Computes a step that was taken."""
        try:
            made = self.compute(step, queue.observer.epoch)
        except Exception as error:
            queue.settle([step], error)
        else:
            queue.finish(step, made)
            self.compute.forget(step)


@dataclass(frozen=True)
class Processes:
    """This process's own executor, and helper processes that work on the same store beside it."""

    own: Executor
    command: Sequence[str]  # that starts a helper
    helpers: int

    def run(self, plan: Plan, observer: Observer) -> Outcome:
        """Works until nothing is left that can be computed."""
        with Helpers(self.command, self.helpers, plan, observer):
            return self.own.run(plan, observer)
