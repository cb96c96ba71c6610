"""A study, run: everything that it lacks is computed, and what came out is written beside it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

from ..core.errors import InputError, kind_of
from ..extras import need
from .collecting import register
from .findings import Rows, epoch_lines, probe_lines, rows_of, summaries
from .imports import Imports, asked_for, import_asked_for
from .jobs import Job
from .plan.reading import in_results, parsed, read_study, written
from .plan.study import Study
from .store import FolderStore
from .store.files import read_json, write_text

STUDY_FILE, RUN_FILE = "study.yaml", "run.json"
EPOCHS_FILE, PROBES_FILE, SUMMARY_FILE = "epochs.jsonl", "dead_neurons.jsonl", "summary.json"


class Run(Job):
    """A study, the folder of its results, the store that it shares with others, and modules that it needs: None are
    those that this process was asked to import.
    """

    def __init__(self, study: Study, out: Path, store: FolderStore, needs: Imports | None = None) -> None:
        self.study = study.pinned()
        self.needs = asked_for() if needs is None else needs
        super().__init__([self.study], out, store)

    @classmethod
    def opened(cls, out: str | Path) -> Run:
        """A run that was started before."""
        folder = Path(out)
        setup = read_json(folder / RUN_FILE, "store", "imports", "import_from")
        if not isinstance(setup["store"], str):
            raise InputError(f"{folder / RUN_FILE} cannot be read: its store is no path")
        needs = import_asked_for(setup, folder / RUN_FILE)
        return cls(read_study(folder / STUDY_FILE), folder, FolderStore(folder / setup["store"]), needs)

    @property
    def runs(self) -> dict[str, Run]:
        """Itself alone."""
        return {"": self}

    @property
    def imports(self) -> tuple[str, ...]:
        """Names of the modules that it needs."""
        return tuple(self.needs["imports"])

    def rows(self) -> Rows:
        """What was found so far, one row a cell and seed."""
        return rows_of(self.plan, self.store)

    def write_study(self) -> None:
        """The study as it is run, and where its store is, so that the folder says what it is."""
        write_text(self.out / STUDY_FILE, written(self.study))
        setup = {"store": os.path.relpath(self.store.root, self.out), **self.needs}
        write_text(self.out / RUN_FILE, json.dumps(setup) + "\n")
        register(self.store, self.out, self.study, self.needs)

    def is_written(self) -> bool:
        """Whether the folder says that just this is being run."""
        path = self.out / STUDY_FILE
        return path.is_file() and path.read_text(encoding="utf-8") == written(self.study)

    def differences(self) -> list[str]:
        """The keys of the study whose values the last run in the folder had otherwise, and that change results."""
        try:
            before = parsed((self.out / STUDY_FILE).read_text(encoding="utf-8"), STUDY_FILE)
        except (OSError, InputError):  # none, or one that cannot be read any more
            return []
        return [key for key, value in in_results(self.study).items() if in_results(before)[key] != value]

    def write_records(self) -> None:
        """One line an epoch, one a look at dead neurons, and one summary, from what is in the store."""
        lines = [json.dumps(line, sort_keys=True) for line in epoch_lines(self.plan, self.store)]
        write_text(self.out / EPOCHS_FILE, "".join(f"{line}\n" for line in lines))
        if self.plan.probe_every:
            lines = [json.dumps(line, sort_keys=True) for line in probe_lines(self.plan, self.store)]
            write_text(self.out / PROBES_FILE, "".join(f"{line}\n" for line in lines))
        cells = [cell.as_dict() for cell in summaries(self.rows())]
        write_text(self.out / SUMMARY_FILE, json.dumps({"cells": cells}, indent=1) + "\n")

    def write_csv(self) -> Path:
        """The rows as a table for other programs."""
        path, rows, text = self.out / "rows.csv", self.rows(), io.StringIO()
        table = csv.DictWriter(text, [*rows[0]])
        table.writeheader()
        table.writerows({**row, "failure": json.dumps(row["failure"]) if row["failure"] else ""} for row in rows)
        write_text(path, text.getvalue())
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
    for role, given, what in (("study", study, "its name or a YAML file"), ("out", out, "the name of a folder")):
        if not isinstance(given, (str, os.PathLike)) and not (given is None and role == "out"):
            raise InputError(f"{role}: {what} is needed, not {kind_of(given)}; keys are changed with set={{...}}")
    return Path(out) if out is not None else Path("runs") / Path(study).stem


def store_beside(out: Path, store: str | Path | None) -> FolderStore:
    """The store that is named, or the one that all runs in the same folder share."""
    return FolderStore(out.parent / ".store" if store is None else store)
