"""The steps that a process can compute now, and what becomes of them: the half that all executors share."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ...core.errors import InputError
from ..plan import Plan, Seen, Todo
from ..plan.steps import Step
from ..store import Damaged, FolderStore, Missing
from ..store.leases import LEASE_SECONDS, Lease, Leases
from .compute import Made, StepFailed
from .observer import Observer

SECONDS_TO_WAIT = 0.5  # for a step that another process is computing
TRIES = 3  # of one step, whose result may be damaged after it was finished

Choose = Callable[[Sequence[Step]], Sequence[Step]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How many steps were computed here, which could not be because a training before them failed, and what failed."""

    computed: int
    blocked: tuple[Step, ...]
    failed: tuple[str, ...] = ()  # one line a step


def one(ready: Sequence[Step]) -> Sequence[Step]:
    """The first."""
    return ready[:1]


class Queue:
    """Ready steps of a plan, taken with a lease each, so that others on the same store leave them alone.

    Threads may share it. As a context manager it keeps the leases of what was taken, and gives them back at the end.
    """

    def __init__(self, plan: Plan, store: FolderStore, leases: Leases, observer: Observer) -> None:
        self.plan, self.store, self.leases, self.observer = plan, store, leases, observer
        self._seen = Seen(store)
        self.failed: dict[str, str] = {}
        self.computed = 0
        self._held: dict[str, tuple[Lease, float]] = {}  # by key: the lease, and when work on it began
        self._tries: Counter[str] = Counter()
        self._lock = threading.RLock()  # no two threads take the same step
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        self._renewing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._renewing.join()
        for key in list(self._held):
            self._release(key)

    def todo(self) -> Todo:
        """What the store lacks."""
        with self._lock:
            return self.plan.todo(self._seen)

    def take(self, choose: Choose = one, wait: bool = True) -> list[Step]:
        """Steps to compute next, of those that `choose` picks; none when nothing is left that could be.

        It waits while all that is ready is in the hands of other processes, unless told not to.
        """
        while True:
            with self._lock:
                todo = self.plan.todo(self._seen)
                if not todo.missing:  # to be sure: something may have been damaged since
                    self._seen.forget()
                    todo = self.plan.todo(self._seen)
                self.observer.planned(todo)
                ready = [step for step in todo.ready if step.key not in self.failed and step.key not in self._held]
                if not ready:
                    return []
                free = [step for step in ready if self.leases.holder(step.key) is None]
                taken = self._claimed(choose(free))
            if taken or not wait:
                return taken
            time.sleep(SECONDS_TO_WAIT)

    def finish(self, step: Step, made: Made) -> None:
        """Keeps a result. Of one that was there before, and came out differently, the first record stays."""
        self.store.put(step.key, made.parts, made.provenance)
        if lost := {name: part for name, part in made.parts.items() if not self.store.has(step.key, name)}:
            self.observer.trouble(f"{step.kind} {step.key} came out differently this time: its first record is kept")
            self.store.put(step.key, lost, made.provenance)
        with self._lock:
            self.computed += 1
        self.observer.finished(step, self._release(step.key))

    def settle(self, steps: Sequence[Step], error: Exception) -> None:
        """Decides what becomes of steps that were taken together, and that an error kept from being computed."""
        if isinstance(error, Damaged | Missing):  # an input, which must be computed again: the steps are for later
            self.observer.trouble(str(error))
            for step in steps:
                self.give_back(step, tried=error.key in {used.key for used in step.inputs.values()})
        elif isinstance(error, InputError):  # of the data or the machine: nothing else would go better
            raise error
        else:
            _log.debug("%d steps", len(steps), exc_info=error)
            for step in steps:
                self._fail(step, error)

    def give_back(self, step: Step, tried: bool = False) -> None:
        """Leaves a step for later; that it was `tried` counts against it, unless that was no fault of its own."""
        self._tries[step.key] -= not tried
        self._seen.forget()
        self._release(step.key)

    def outcome(self) -> Outcome:
        """What has become of the plan."""
        return Outcome(self.computed, self.plan.todo(self.store).blocked, tuple(self.failed.values()))

    def _fail(self, step: Step, error: Exception) -> None:
        """Notes that a step cannot be computed; steps that do not need it go on."""
        kind = "" if isinstance(error, StepFailed) else f"{type(error).__name__}: "  # a network's or a method's own
        self.failed[step.key] = f"{step.title}, {step.key}: {kind}{error}"
        self.observer.trouble(f"failed: {self.failed[step.key]}")
        self._release(step.key)

    def _claimed(self, steps: Sequence[Step]) -> list[Step]:
        """Those of the steps whose lease could be had, and that nobody finished just before."""
        now = time.perf_counter()
        mine = {step.key: lease for step in steps if (lease := self.leases.take(step.key)) is not None}
        self._held |= {key: (lease, now) for key, lease in mine.items()}
        ready = {step.key for step in self.plan.todo(self._seen).ready} if mine else set()
        for key in mine.keys() - ready:
            self._release(key)
        taken = [step for step in steps if step.key in mine and step.key in ready]
        for step in taken:
            self._tries[step.key] += 1
            if self._tries[step.key] > TRIES:
                raise InputError(f"{step.kind} {step.key} was tried {TRIES} times, and the store still lacks it")
            self.observer.started(step)
        return taken

    def _release(self, key: str) -> float:
        """Gives a lease back; returns for how many seconds it was held."""
        lease, since = self._held.pop(key)
        lease.release()
        return time.perf_counter() - since

    def _renew(self) -> None:
        while not self._over.wait(LEASE_SECONDS / 3):
            for lease, _ in list(self._held.values()):
                lease.renew()
