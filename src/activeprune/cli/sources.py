"""What a report can be made of: runs and grids with their stores, and the records of an earlier report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InputError
from ..experiment.jobs import Job
from ..experiment.runs import RUN_FILE, SUMMARY_FILE
from ..experiment.search import is_started, opened
from ..report.gathering import Gathered
from ..report.records import RECORDS, read_records
from .studies import found_in


@dataclass(frozen=True)
class Given:
    """A folder of a run or a grid, finished or not; or what a report wrote down of runs, where there is no `job`."""

    out: Path
    job: Job | None
    kept: tuple[Gathered, ...] = ()

    def runs(self) -> list[Gathered]:
        """What is known now."""
        return [*self.kept] if self.job is None else found_in(self.job)


def given(path: Path) -> Given:
    """What is in a folder, or the records in a file."""
    if path.is_file() and path.name != RECORDS and (path.parent / RUN_FILE).is_file():
        raise InputError(f"{path} is one file of a run: activeprune report {path.parent}")
    kept = path if path.is_file() else path / RECORDS
    if kept.is_file() and not is_started(path):
        return Given(kept.parent, None, tuple(read_records(kept)))
    job = opened(path)
    had_results = any((run.out / SUMMARY_FILE).is_file() for run in job.runs.values())
    if had_results and not job.store.root.is_dir():
        instead = f"; what its last report is made of is in {kept}" if kept.is_file() else ""
        raise InputError(f"the store of {path} is not there: {job.store.root} (named in {RUN_FILE}){instead}")
    return Given(job.out, job)
