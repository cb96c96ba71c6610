"""Who computes the steps of a plan: this process, or several that share a store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..core.errors import InputError
from ..machine import one_thread
from .compute import Compute, StepFailed
from .helpers import Helpers
from .leases import Leases
from .observer import Observer
from .plan import Plan
from .queue import Queue
from .steps import Step
from .store import Damaged, FolderStore, Missing

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How many steps were computed here, which could not be because a training before them failed, and what failed."""

    computed: int
    blocked: tuple[Step, ...]
    failed: tuple[str, ...] = ()  # one line a step


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
                    self.one(step, queue, observer)
                self.after_step()
            return Outcome(queue.computed, plan.todo(self.store).blocked, tuple(queue.failed.values()))

    def one(self, step: Step, queue: Queue, observer: Observer) -> None:
        """Computes a step that was taken."""
        try:
            made = self.compute(step, observer.epoch)
        except StepFailed as error:
            queue.fail(step, error)
        except (Damaged, Missing) as error:
            queue.put_back(step, error)
        except InputError:  # of the data or the machine: nothing else would go better
            raise
        except Exception as error:  # whatever a network or a method of the user's own does
            _log.debug("%s %s", step.kind, step.key, exc_info=True)
            queue.fail(step, StepFailed(f"{step.kind} {step.key}: {type(error).__name__}: {error}"))
        else:
            queue.finish(step, made)
            self.compute.forget(step)


@dataclass(frozen=True)
class Processes:
    """This process's own executor, and helper processes that work on the same folder beside it."""

    own: Executor
    out: Path
    helpers: int
    pack: int | None = None  # of each helper

    def run(self, plan: Plan, observer: Observer) -> Outcome:
        """Works until nothing is left that can be computed."""
        with Helpers(self.out, self.helpers, plan, observer, self.pack):
            return self.own.run(plan, observer)
