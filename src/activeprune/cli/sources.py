"""What a report can be made of: runs and grids with their stores, and the records of an earlier report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..experiment.runs import RUN_FILE, SUMMARY_FILE
from ..experiment.search import GRID_FILE, opened
from ..report.gathering import Gathered, gathered
from ..report.records import RECORDS, read_records
from ..report.tables import accuracy_table
from .show import show_table
from .studies import Job, print_results, runs_of


class Started:
    """A run or a grid, finished or not."""

    def __init__(self, folder: Path) -> None:
        self.job: Job = opened(folder)
        self.out = self.job.out
        had_results = any((run.out / SUMMARY_FILE).is_file() for run in runs_of(self.job).values())
        if had_results and not self.job.store.root.is_dir():
            kept = f"; what its last report is made of is in {folder / RECORDS}" if (folder / RECORDS).is_file() else ""
            raise InputError(f"the store of {folder} is not there: {self.job.store.root} (named in {RUN_FILE}){kept}")

    def runs(self) -> Iterator[Gathered]:
        """What is known now."""
        for label, run in runs_of(self.job).items():
            found = gathered(run)
            yield replace(found, title=f"{self.out.name} {label}") if label else found

    def show(self) -> None:
        """Prints its results."""
        print_results(self.job)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a grid has `studies`."""
        return self.job.as_dict()


class Kept:
    """What a report wrote down of runs, without their folders and stores."""

    def __init__(self, path: Path) -> None:
        self.out, self._runs = path.parent, read_records(path)

    def runs(self) -> Iterator[Gathered]:
        """All of them."""
        return iter(self._runs)

    def show(self) -> None:
        """Prints their accuracies."""
        for run in self._runs:
            show_table(accuracy_table(run))

    def as_dict(self) -> dict[str, Any]:
        """For JSON; several have `studies`."""
        told = [
            {"study": run.study.model_dump(mode="json"), "cells": [dict(cell) for cell in accuracy_table(run).records]}
            for run in self._runs
        ]
        return told[0] if len(told) == 1 else {"studies": told}


Source = Started | Kept


def source(path: Path) -> Source:
    """What is in a folder, or the records in a file."""
    kept = path if path.is_file() else path / RECORDS
    is_started = any((path / name).is_file() for name in (RUN_FILE, GRID_FILE))
    return Kept(kept) if kept.is_file() and not is_started else Started(path)
