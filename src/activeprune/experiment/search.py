"""Several studies at once, and the best of them by validation accuracy: test images have no say."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ..core.errors import InputError, kind_of, listed
from .findings import Rows
from .jobs import Job
from .plan.reading import read_grid, written
from .plan.study import Study
from .runs import RUN_FILE, Run, folder_of, store_beside
from .store import FolderStore
from .store.files import read_json, write_text
from .store.records import train_record

WINNER_FILE, GRID_FILE = "winner.yaml", "grid.json"
LONGEST_FOLDER = 100  # characters


class Search(Job):
    """A grid of studies in one folder, by "key=value,key=value".

    They are one plan: what several of them need is computed once, and steps of all are ready at the same time.
    """

    def __init__(self, runs: Mapping[str, Run], out: Path, store: FolderStore) -> None:
        self._runs = dict(runs)
        super().__init__((run.study for run in self._runs.values()), out, store)

    @classmethod
    def new(cls, studies: Mapping[str, Study], out: Path, store: str | Path | None = None) -> Search:
        """Each study gets a folder of its own inside `out`."""
        shared = store_beside(out, store)
        return cls(
            {label: Run(study, out / folder_name(label), shared) for label, study in studies.items()}, out, shared
        )

    @classmethod
    def opened(cls, out: str | Path) -> Search:
        """A grid that was started before."""
        folder = Path(out)
        folders = read_json(folder / GRID_FILE, "studies")["studies"]
        if not isinstance(folders, dict) or not folders:
            raise InputError(f"{folder / GRID_FILE} cannot be read: it names no studies")
        runs = {label: Run.opened(folder / name) for label, name in folders.items()}
        return cls(runs, folder, next(iter(runs.values())).store)

    @property
    def runs(self) -> dict[str, Run]:
        """Those of its studies, by label."""
        return self._runs

    def rows(self) -> Rows:
        """What was found so far, one row a study, cell and seed."""
        return Rows({"study": label, **row} for label, run in self.runs.items() for row in run.rows())

    def write_study(self) -> None:
        """All studies first, so that none of them tidies away what another needs, then a list of them."""
        for run in self.runs.values():
            run.write_study()
        write_text(self.out / GRID_FILE, self._index())
        for stale in (RUN_FILE, WINNER_FILE):
            (self.out / stale).unlink(missing_ok=True)

    def is_written(self) -> bool:
        """Whether the folder says that just this is being run."""
        path = self.out / GRID_FILE
        named = path.is_file() and path.read_text(encoding="utf-8") == self._index()
        return named and all(run.is_written() for run in self.runs.values())

    def _index(self) -> str:
        return json.dumps({"studies": {label: run.out.name for label, run in self.runs.items()}}, indent=1) + "\n"

    def write_records(self) -> None:
        """Of every study, and the best of those that are finished as a study file."""
        for run in self.runs.values():
            run.write_records()
        if (best := self.best()) is not None:
            found = self.validation()
            text = f"# the best of {len(found)} by validation accuracy ({found[best]:.2%}): {best}\n"
            write_text(self.out / WINNER_FILE, text + written(self.runs[best].study))

    def validation(self) -> dict[str, float]:
        """Of every study that is finished, the mean validation accuracy over its cells, at their best epochs."""
        return {label: fmean(found) for label, run in self.runs.items() if (found := _validation_accuracies(run))}

    def best(self) -> str | None:
        """The study with the highest validation accuracy, the first on a tie; None while none is finished."""
        found = self.validation()
        return max(found, key=lambda label: found[label]) if found else None


def started(
    study: str | Path,
    out: str | Path | None = None,
    store: str | Path | None = None,
    changes: Mapping[str, Any] | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
) -> Run | Search:
    """A study by name or file, with some keys changed, as a run; or as a search, if it or `grid` names a grid."""
    folder, studies = folder_of(study, out), read_grid(study, changes, grid)
    if len(studies) > 1:
        return Search.new(studies, folder, store)
    (only,) = studies.values()
    return Run(only, folder, store_beside(folder, store))


def is_started(folder: Path) -> bool:
    """Whether something was started in a folder."""
    return any((folder / name).is_file() for name in (RUN_FILE, GRID_FILE))


def opened(out: str | Path) -> Run | Search:
    """What was started in a folder before."""
    if isinstance(out, Job):
        raise InputError(f"a folder is needed, not {kind_of(out)}, which has its rows already: rows()")
    folder = Path(out)
    if (folder / RUN_FILE).is_file():
        return Run.opened(folder)
    if (folder / GRID_FILE).is_file():
        return Search.opened(folder)
    inside = sorted(str(path.parent) for name in (RUN_FILE, GRID_FILE) for path in folder.glob(f"*/{name}"))
    usual = folder_of(folder, None)
    if inside:
        instead = f"{listed(inside)} inside it " + ("do" if len(inside) > 1 else "does")
    elif FolderStore(folder).is_there:
        instead = "it is a store, and the folders of its runs are beside it"
    elif is_started(usual):
        instead = f"{usual} does"
    else:
        instead = f"activeprune run STUDY --out {folder} starts one"
    raise InputError(f"{folder} holds no run: {instead}")


def folder_name(label: str) -> str:
    """A name for the folder of a study or run: its label, where that can be one.

    >>> folder_name("lr=0.1,q=0.02")
    'lr=0.1,q=0.02'
    """
    plain = re.sub(r"[^\w=.,+-]", "_", label)
    if plain == label and len(label) <= LONGEST_FOLDER:
        return label
    return f"{plain[:LONGEST_FOLDER]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _validation_accuracies(run: Run) -> list[float] | None:
    """One number a cell; None where a cell is missing or failed."""
    accuracies = []
    for cell in run.plan.cells:
        record = train_record(run.store, cell.training.key)
        if record is None or record.validation_accuracy is None:
            return None
        accuracies.append(record.validation_accuracy)
    return accuracies
