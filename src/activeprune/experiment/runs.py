"""A study, run: everything that it lacks is computed, and what came out is written beside it."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ..core.errors import InputError
from ..extras import need
from ..machine import device as usable_device
from .compute import SECONDS_BETWEEN_CHECKPOINTS, Compute
from .executors import Observer, Outcome, run_here
from .findings import Rows, epoch_lines, rows_of, summaries
from .helpers import Helpers
from .leases import Leases
from .plan import CHECKPOINT, STATE, Plan
from .reading import read_study, written
from .store import FolderStore
from .study import Study

IMPORTS = "ACTIVEPRUNE_IMPORT"  # an environment variable: modules that this process and its helpers import
LARGE = (STATE, CHECKPOINT)  # parts that need not outlast a study
STUDY_FILE, RUN_FILE, EPOCHS_FILE, SUMMARY_FILE = "study.yaml", "run.json", "epochs.jsonl", "summary.json"


def register(store: Path, out: Path) -> None:
    """Lets a store know of a run, so that nothing of it is collected while the run's folder is there."""
    name = hashlib.sha256(os.fsencode(out.resolve())).hexdigest()[:16]
    _write(store / "runs" / f"{name}.json", json.dumps({"out": str(out.resolve())}) + "\n")


def registered(store: Path) -> list[Run]:
    """The runs that a store knows of and whose folders are still there."""
    folders = []
    for path in sorted((store / "runs").glob("*.json")):
        try:
            folders.append(Path(json.loads(path.read_text(encoding="utf-8"))["out"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} does not name the folder of a run: {error}") from error
    return [Run.opened(folder) for folder in folders if (folder / RUN_FILE).is_file()]


def collect(store: FolderStore, runs: Iterable[Run]) -> int:
    """Drops the weights that none of these runs, nor any other that the store knows of, still needs; returns bytes."""
    everyone = {run.out.resolve(): run for run in [*registered(store.root), *runs]}
    needed = {pair for run in everyone.values() for pair in run.needed()}
    freed = 0
    for entry in list(store.list()):
        for part in LARGE:
            if part in entry.parts and (entry.key, part) not in needed:
                freed += store.drop(entry.key, part)
    return freed


def store_beside(out: Path, store: str | Path | None) -> FolderStore:
    """The store that is named, or the one that all runs in the same folder share."""
    return FolderStore(out.parent / ".store" if store is None else store)


@dataclass(frozen=True)
class Run:
    """A study, the folder of its results, and the store that it shares with others."""

    study: Study
    out: Path
    store: FolderStore

    @classmethod
    def new(
        cls,
        study: str | Path,
        out: str | Path | None = None,
        store: str | Path | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Run:
        """A run in the folder `out` (runs/STUDY); the store is `.store` beside it unless another is named."""
        folder = Path(out) if out is not None else Path("runs") / Path(study).stem
        return cls(read_study(study, changes), folder, store_beside(folder, store))

    @classmethod
    def opened(cls, out: str | Path) -> Run:
        """A run that was started before."""
        folder = Path(out)
        if not (folder / RUN_FILE).is_file():
            raise InputError(f"{folder} holds no run: activeprune run STUDY --out {folder} starts one")
        try:
            told = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
            import_all(told.get("imports", []))
            return cls(read_study(folder / STUDY_FILE), folder, FolderStore(folder / told["store"]))
        except (OSError, KeyError, json.JSONDecodeError) as error:
            raise InputError(f"{folder / RUN_FILE} cannot be read: {error}") from error

    @cached_property
    def plan(self) -> Plan:
        """The steps of the study."""
        return Plan(self.study)

    @property
    def device(self) -> str:
        """Where it is computed: `auto` is a GPU where there is one."""
        if self.study.device != "auto":
            return str(usable_device(self.study.device))
        return "cuda" if torch.cuda.is_available() else "cpu"

    def go(
        self,
        observer: Observer | None = None,
        processes: int = 1,
        seconds_between_checkpoints: float = SECONDS_BETWEEN_CHECKPOINTS,
    ) -> Outcome:
        """Computes what is missing; what was there before is found again. `processes` work on it at once."""
        self.write_study()
        observer = observer or Observer()
        try:
            with Helpers(self.out, processes - 1, self.plan, observer):
                return self.work(observer, seconds_between_checkpoints)
        finally:
            self.write_records()

    def work(self, observer: Observer, seconds_between_checkpoints: float = SECONDS_BETWEEN_CHECKPOINTS) -> Outcome:
        """Computes in this process, beside others that may do the same.

        A CPU training runs in one thread: its bits then depend neither on the machine's cores nor on who else works.
        """
        root = self.store.root
        compute = Compute(
            self.store, root / "checkpoints", self.device, os.cpu_count() or 0, seconds_between_checkpoints
        )

        def tidy() -> None:
            if self.study.keep != "all":
                try:
                    collect(self.store, [self])
                except InputError as error:  # a run of somebody else that cannot be read: then nothing is dropped
                    observer.trouble(f"nothing is tidied away: {error}")

        threads = torch.get_num_threads()
        torch.set_num_threads(1 if self.device == "cpu" else threads)
        try:
            return run_here(self.plan, self.store, compute, Leases(root), observer, tidy)
        finally:
            torch.set_num_threads(threads)

    def needed(self) -> set[tuple[str, str]]:
        """The large parts of the store that this run keeps: all, what one more cycle would need, or what is left."""
        if self.study.keep == "all":
            return {(key, part) for key in self.plan.steps for part in LARGE}
        return self.frontier() if self.study.keep == "frontier" else self.plan.todo(self.store).needed()

    def frontier(self) -> set[tuple[str, str]]:
        """What the steps that are missing, and those of one more cycle, read."""
        one_more = {"cycles": self.study.cycles + 1, "report_cycles": (*self.study.reported, self.study.cycles + 1)}
        return Plan(Study(**{**dict(self.study), **one_more})).todo(self.store).needed()

    def rows(self) -> Rows:
        """What was found so far, one row a cell and seed."""
        return rows_of(self.plan, self.store)

    def write_study(self) -> None:
        """The study as it is run, and where its store is, so that the folder says what it is."""
        store = os.path.relpath(self.store.root, self.out)
        _write(self.out / STUDY_FILE, written(self.study))
        modules = [name for name in os.environ.get(IMPORTS, "").split(",") if name]
        _write(self.out / RUN_FILE, json.dumps({"store": store, "imports": modules}) + "\n")
        register(self.store.root, self.out)

    def write_records(self) -> None:
        """One line an epoch and one summary, from what is in the store."""
        lines = [json.dumps(line, sort_keys=True) for line in epoch_lines(self.plan, self.store)]
        _write(self.out / EPOCHS_FILE, "".join(f"{line}\n" for line in lines))
        cells = [cell.as_dict() for cell in summaries(self.rows())]
        _write(self.out / SUMMARY_FILE, json.dumps({"cells": cells}, indent=1) + "\n")

    def write_csv(self) -> Path:
        """The rows as a table for other programs."""
        path = self.out / "rows.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, ["variant", "cycle", "seed", "density", "accuracy", "best_epoch", "key"])
            table.writeheader()
            table.writerows({name: row[name] for name in table.fieldnames} for row in self.rows())
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


def import_all(modules: Iterable[str]) -> None:
    """Imports the modules that a study needs for methods, networks or data of its own."""
    for module in modules:
        try:
            import_module(module)
        except Exception as error:  # whatever a stranger's module does when it is imported
            raise InputError(f"module {module!r} cannot be imported: {type(error).__name__}: {error}") from error


def _write(path: Path, text: str) -> None:
    """Under another name first, so that nobody sees half a file."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
