"""A report of a run that goes on: written again whenever its store has something new."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..core.errors import InputError
from ..experiment.files import in_use
from ..experiment.jobs import Job

SHARE = 4  # times as long as it wrote a live report waits: the cores are for the run
NOBODY = "nobody is working on this run now"
LAST = "writing the last page"


@dataclass(frozen=True)
class Progress:
    """The steps that are still missing; a run is over when all of them wait for one that failed."""

    missing: frozenset[str]
    over: bool


def progress(jobs: Iterable[Job]) -> Progress:
    """Of several runs together."""
    left = [job.plan.todo(job.store) for job in jobs]
    missing = frozenset(step.key for todo in left for step in todo.missing)
    return Progress(missing, all(len(todo.missing) == len(todo.blocked) for todo in left))


def worked_on(jobs: Iterable[Job]) -> bool:
    """Whether a process is at one of them."""
    return any(in_use(job.out) for job in jobs)


@dataclass
class Following:
    """What a live report looks at, and what it does.

    `write` makes a page that waits for the next one, `finish` the last one and all that goes with it. `wait` takes
    seconds, `tell` a line for whoever watches; `busy` says whether somebody works on the run.
    """

    look: Callable[[], Progress]
    busy: Callable[[], bool]
    write: Callable[[], None]
    finish: Callable[[], None]
    wait: Callable[[float], None]
    tell: Callable[[str], None]
    every: float
    clock: Callable[[], float] = time.monotonic
    _told: set[str] = field(default_factory=set)

    def follow(self) -> None:
        """Writes whenever less is missing than before, until the run is over or interrupted, and then once more.

        What cannot be written is told of and tried again; only the last time it is an error.
        """
        try:
            self._until_over()
        except KeyboardInterrupt:  # whoever watches has seen enough; the run itself is another process
            self.tell(LAST)
        self.finish()

    def _until_over(self) -> None:
        known, took = None, 0.0
        while not (found := self.look()).over:
            if found != known:
                since = self.clock()
                try:
                    self.write()
                except InputError as error:
                    self._once(f"the page is not written: {error}; it is tried again")
                else:
                    known = found
                    self._told.clear()
                took = self.clock() - since
            if NOBODY not in self._told and not self.busy():
                self._once(NOBODY)
            self.wait(max(self.every, SHARE * took))

    def _once(self, line: str) -> None:
        """Not again before there is something new."""
        if line not in self._told:
            self._told.add(line)
            self.tell(line)


@contextmanager
def ended_politely() -> Iterator[None]:
    """Takes a request to end (SIGTERM) for Ctrl-C, as far as this thread is asked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
