"""A report of a run that goes on: written again whenever its store has something new."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InputError
from ..experiment.jobs import Job
from ..experiment.store.files import in_use
from .records import write_records
from .report import Live, Report
from .writing import draw_figures, draw_page, write_tables

SHARE = 4  # times as long as it wrote a live report waits: the cores are for the run
NOBODY = "nobody is working on this run now"
LAST = "writing the last page"


@dataclass(frozen=True)
class Progress:
    """The steps that are still missing; a run is over when all of them wait for one that failed."""

    missing: frozenset[str]
    over: bool


@dataclass(frozen=True)
class Ongoing:
    """Runs that go on, and what reads a report of all that is known of them."""

    jobs: Sequence[Job]
    read: Callable[[], Report]

    def look(self) -> Progress:
        """What is missing of all runs together."""
        left = [job.plan.todo(job.store) for job in self.jobs]
        missing = frozenset(step.key for todo in left for step in todo.missing)
        return Progress(missing, all(len(todo.missing) == len(todo.blocked) for todo in left))

    def busy(self) -> bool:
        """Whether a process is at one of them."""
        return any(in_use(job.out) for job in self.jobs)


class LiveReport:
    """The tables and the page of runs in a folder. Figures are drawn once, at the end; until then only what is quick
    is written. `show` is told of the first page.
    """

    def __init__(
        self,
        runs: Ongoing,
        folder: Path,
        every: int,
        figures: bool = True,
        show: Callable[[Path], object] | None = None,
    ) -> None:
        self.runs, self.folder, self.every = runs, folder, every
        self.figures, self.show = figures, show
        self._shown = False
        self._told: set[str] = set()

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
        while not (found := self.runs.look()).over:
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
            if NOBODY not in self._told and not self.runs.busy():
                self._once(NOBODY)
            self.wait(max(self.every, SHARE * took))

    def _once(self, line: str) -> None:
        """Not again before there is something new."""
        if line not in self._told:
            self._told.add(line)
            self.tell(line)

    def wait(self, seconds: float) -> None:
        """Until the next look."""
        time.sleep(seconds)

    def clock(self) -> float:
        """Seconds since some time."""
        return time.monotonic()

    def tell(self, line: str) -> None:
        """Says something to whoever watches."""
        print(line, file=sys.stderr, flush=True)

    def now(self) -> str:
        """The time as a page says it."""
        return time.strftime("%Y-%m-%d %H:%M:%S")

    def write(self) -> None:
        """Tables, and a page that waits for the next one."""
        report = self.runs.read()
        write_tables(report, self.folder)
        self._tell_of(report, draw_page(report, self.folder, Live(self.now(), self.every)))

    def finish(self) -> None:
        """First a page that stays, without the printed figures, which take a while: whoever ends this has that."""
        report = self.runs.read()
        self._tell_of(report, draw_page(report, self.folder, images=False))
        write_tables(report, self.folder)
        write_records(report.runs, self.folder)
        draw_page(report, self.folder)
        if self.figures:
            draw_figures(report, self.folder)

    def _tell_of(self, report: Report, page: Path) -> None:
        if not self._shown:
            self.tell(f"the page is {page}; it follows the run until that is over (Ctrl-C: until now)")
            self._shown = True
            if self.show is not None:
                self.show(page)
        missing = sum(training.missing for run in report.runs for training in run.trainings)
        count = sum(len(run.trainings) for run in report.runs)
        self.tell(f"{self.now()}: {count - missing} of {count} reported trainings")


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
