"""A report of a run that goes on: written again whenever its store has something new."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..experiment.jobs import Job


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


def watched(look: Callable[[], Progress], write: Callable[[bool], None], wait: Callable[[], None]) -> None:
    """Writes whenever less is missing than before, until the run is over or interrupted, and then once more.

    `write` is told whether more will come, `wait` returns when it is time to look again.
    """
    known = None
    try:
        while not (found := look()).over:
            if found != known:
                write(True)
                known = found
            wait()
    except KeyboardInterrupt:
        pass  # whoever watches has seen enough; the run itself is another process
    write(False)
