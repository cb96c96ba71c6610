"""Who computes the steps: this process, or several that share a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..core.errors import InputError
from ..training import Epoch
from .compute import Compute, StepFailed
from .leases import Lease, Leases
from .plan import Plan, Todo
from .steps import Step
from .store import Damaged, FolderStore, Missing

SECONDS_TO_WAIT = 0.5  # for a step that another process is computing


class Observer:
    """Somebody who is told how it goes; this one says nothing."""

    def planned(self, todo: Todo) -> None:
        """What is left to do, each time it has changed."""

    def started(self, step: Step) -> None:
        """A step begins here."""

    def epoch(self, step: Step, epoch: Epoch, epochs: int) -> None:
        """An epoch of a training has ended."""

    def finished(self, step: Step, seconds: float) -> None:
        """A step is in the store."""

    def trouble(self, line: str) -> None:
        """Something was damaged and is computed again."""

    def close(self) -> None:
        """It is over."""


@dataclass(frozen=True)
class Outcome:
    """How many steps were computed here, which could not be because a training before them failed, and what failed."""

    computed: int
    blocked: tuple[Step, ...]
    failed: tuple[str, ...] = ()  # one line a step


def run_here(
    plan: Plan,
    store: FolderStore,
    compute: Compute,
    leases: Leases,
    observer: Observer,
    after_step: Callable[[], None] = lambda: None,
) -> Outcome:
    """Computes what is missing in this process, one step after the other, until nothing is.

    Other processes may do the same on the same store: a step that one of them holds is left to it.
    """
    computed = 0
    failed: dict[str, str] = {}
    while True:
        todo = plan.todo(store)
        observer.planned(todo)
        ready = [step for step in todo.ready if step.key not in failed]
        if not ready:
            return Outcome(computed, todo.blocked, tuple(failed.values()))
        step, lease = _taken(ready, leases)
        if step is None or lease is None:
            time.sleep(SECONDS_TO_WAIT)
            continue
        with lease, _kept(lease):
            if step.key not in {left.key for left in plan.todo(store).ready}:
                continue  # another process finished it before the lease was taken
            try:
                done = _compute(step, store, compute, observer)
            except StepFailed as error:
                failed[step.key] = str(error)
                observer.trouble(f"failed: {error}")
                continue
            if done:
                computed += 1
                if step.key in {left.key for left in plan.todo(store).missing}:
                    raise InputError(
                        f"{step.kind} {step.key} is done and still counts as missing: the store keeps nothing"
                    )
        after_step()


def _taken(ready: Iterable[Step], leases: Leases) -> tuple[Step | None, Lease | None]:
    for step in ready:
        if (lease := leases.take(step.key)) is not None:
            return step, lease
    return None, None


def _compute(step: Step, store: FolderStore, compute: Compute, observer: Observer) -> bool:
    """Whether the step could be computed: an input that turns out damaged must be computed first, again."""
    observer.started(step)
    since = time.perf_counter()
    try:
        made = compute(step, observer.epoch)
    except (Damaged, Missing) as error:
        observer.trouble(str(error))
        return False
    store.put(step.key, made.parts, made.provenance)
    if lost := {name: part for name, part in made.parts.items() if not store.has(step.key, name)}:
        observer.trouble(f"{step.kind} {step.key} came out differently this time: its first record is kept")
        store.put(step.key, lost, made.provenance)
    compute.forget(step)
    observer.finished(step, time.perf_counter() - since)
    return True


@contextmanager
def _kept(lease: Lease) -> Iterator[None]:
    """Renews a lease while a step is computed."""
    done = threading.Event()

    def renew() -> None:
        while not done.wait(lease.seconds / 3):
            lease.renew()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
