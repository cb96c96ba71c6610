"""A study, run: everything that it lacks is computed, and what came out is written beside it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..extras import need
from .findings import Rows, epoch_lines, rows_of, summaries
from .jobs import IMPORTS, Job, import_all, read_json, write
from .plan import CHECKPOINT, STATE, Plan
from .reading import read_study, written
from .steps import pinned
from .store import FolderStore
from .study import Study

LARGE = (STATE, CHECKPOINT)  # parts that need not outlast a study
STUDY_FILE, RUN_FILE, EPOCHS_FILE, SUMMARY_FILE = "study.yaml", "run.json", "epochs.jsonl", "summary.json"


class Run(Job):
    """A study, the folder of its results, and the store that it shares with others."""

    def __init__(self, study: Study, out: Path, store: FolderStore) -> None:
        self.study = study.model_copy(update={"training": pinned(study.training)})
        super().__init__([self.study], out, store)

    @classmethod
    def new(
        cls,
        study: str | Path,
        out: str | Path | None = None,
        store: str | Path | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Run:
        """A run in the folder `out` (runs/STUDY); the store is `.store` beside it unless another is named."""
        folder = folder_of(study, out)
        return cls(read_study(study, changes), folder, store_beside(folder, store))

    @classmethod
    def opened(cls, out: str | Path) -> Run:
        """A run that was started before."""
        folder = Path(out)
        told = read_json(folder / RUN_FILE, "store", "imports")
        import_all(map(str, told["imports"]))  # type: ignore[call-overload]
        return cls(read_study(folder / STUDY_FILE), folder, FolderStore(folder / str(told["store"])))

    def needed(self) -> set[tuple[str, str]]:
        """The large parts of the store that this run keeps: all, what one more cycle would need, or what is left."""
        if self.study.keep == "all":
            return {(key, part) for key in self.plan.steps for part in LARGE}
        return self.frontier() if self.study.keep == "frontier" else self.plan.todo(self.store).needed()

    def frontier(self) -> set[tuple[str, str]]:
        """What the steps that are missing, and those of one more cycle, read."""
        return one_more_cycle(self.study).todo(self.store).needed()

    def rows(self) -> Rows:
        """What was found so far, one row a cell and seed."""
        return rows_of(self.plan, self.store)

    def as_dict(self) -> dict[str, Any]:
        """The study and its cells, for JSON."""
        cells = [cell.as_dict() for cell in summaries(self.rows())]
        return {"study": self.study.model_dump(mode="json"), "cells": cells}

    def tidy(self) -> None:
        """Drops weights that no run of the store needs any longer."""
        collect(self.store, [self])

    def write_study(self) -> None:
        """The study as it is run, and where its store is, so that the folder says what it is."""
        write(self.out / STUDY_FILE, written(self.study))
        modules = [name for name in os.environ.get(IMPORTS, "").split(",") if name]
        told = {"store": os.path.relpath(self.store.root, self.out), "imports": modules}
        write(self.out / RUN_FILE, json.dumps(told) + "\n")
        register(self.store.root, self.out)

    def write_records(self) -> None:
        """One line an epoch and one summary, from what is in the store."""
        lines = [json.dumps(line, sort_keys=True) for line in epoch_lines(self.plan, self.store)]
        write(self.out / EPOCHS_FILE, "".join(f"{line}\n" for line in lines))
        cells = [cell.as_dict() for cell in summaries(self.rows())]
        write(self.out / SUMMARY_FILE, json.dumps({"cells": cells}, indent=1) + "\n")

    def write_csv(self) -> Path:
        """The rows as a table for other programs."""
        path, rows = self.out / "rows.csv", self.rows()
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [*rows[0]])
            table.writeheader()
            table.writerows({**row, "failure": json.dumps(row["failure"]) if row["failure"] else ""} for row in rows)
        return path

    def write_tensorboard(self) -> Path:
        """Every training's epochs as TensorBoard events, made anew from the store."""
        need("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        folder = self.out / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        writers: dict[str, Any] = {}
        for line in epoch_lines(self.plan, self.store):
            if line["key"] not in writers:
                reported = "+".join(line["reported_as"]).replace("/", "-") or "trunk"
                writers[line["key"]] = SummaryWriter(folder / f"seed{line['seed']}-{reported}-{line['key'][:6]}")
            for scalar in ("train_loss", "train_accuracy", "validation_accuracy", "test_accuracy", "lr"):
                writers[line["key"]].add_scalar(scalar, line[scalar], line["epoch"])
        for writer in writers.values():
            writer.close()
        return folder


def folder_of(study: str | Path, out: str | Path | None) -> Path:
    """The folder that is named, or runs/STUDY."""
    return Path(out) if out is not None else Path("runs") / Path(study).stem


def store_beside(out: Path, store: str | Path | None) -> FolderStore:
    """The store that is named, or the one that all runs in the same folder share."""
    return FolderStore(out.parent / ".store" if store is None else store)


def one_more_cycle(study: Study) -> Plan:
    """The plan of a study that goes on for another cycle and reports it, too."""
    more = {"cycles": study.cycles + 1, "report_cycles": (*study.reported, study.cycles + 1)}
    return Plan(study.model_copy(update=more))


def register(store: Path, out: Path) -> None:
    """Lets a store know of a run, so that nothing of it is collected while the run's folder is there."""
    name = hashlib.sha256(os.fsencode(out.resolve())).hexdigest()[:16]
    write(store / "runs" / f"{name}.json", json.dumps({"out": str(out.resolve())}) + "\n")


def registered(store: Path) -> list[Run]:
    """The runs that a store knows of and whose folders are still there."""
    folders = [Path(str(read_json(path, "out")["out"])) for path in sorted((store / "runs").glob("*.json"))]
    return [Run.opened(folder) for folder in folders if (folder / RUN_FILE).is_file()]


def collect(store: FolderStore, runs: Iterable[Run]) -> int:
    """Drops what none of these runs, nor any other that the store knows of, still needs; returns bytes.

    These are weights by each study's `keep`, and checkpoints of trainings that are finished or that nobody asks for.
    """
    everyone = {run.out.resolve(): run for run in [*registered(store.root), *runs]}.values()
    needed = {pair for run in everyone for pair in run.needed()}
    freed = 0
    for entry in list(store.list()):
        for part in LARGE:
            if part in entry.parts and (entry.key, part) not in needed:
                freed += store.drop(entry.key, part)
    wanted = {step.key for run in everyone for step in run.plan.todo(store).missing}
    return freed + _without_checkpoints(store.root / "checkpoints", wanted)


def _without_checkpoints(folder: Path, wanted: set[str]) -> int:
    """Removes the checkpoints of trainings that are not wanted."""
    freed = 0
    for path in folder.glob("*.safetensors"):
        if path.stem not in wanted:
            freed += path.stat().st_size
            path.unlink(missing_ok=True)
    return freed
