"""What can be run: one study or a grid of them, each in a folder beside a store."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ..core.errors import InputError
from ..machine import device as usable_device
from .compute import SECONDS_BETWEEN_CHECKPOINTS, Compute
from .executors import Executor, Local, Outcome, Processes
from .files import discard
from .findings import Rows
from .observer import Observer
from .plan import Plan
from .store import FolderStore
from .study import Study

IMPORTS = "ACTIVEPRUNE_IMPORT"  # an environment variable: modules that this process and its helpers import
SHARE_OF_TIDYING = 0.05  # of the time, at most


class Job(ABC):
    """Studies whose missing steps are computed together, and a folder where what came out is written."""

    def __init__(self, studies: Iterable[Study], out: Path, store: FolderStore) -> None:
        self.studies, self.out, self.store = tuple(studies), out, store

    @abstractmethod
    def write_study(self) -> None:
        """Says in the folder what is being run."""

    @abstractmethod
    def write_records(self) -> None:
        """Says in the folder what came out so far."""

    @abstractmethod
    def rows(self) -> Rows:
        """What was found so far, one row a cell and seed."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """What was found so far, for JSON."""

    @abstractmethod
    def tidy(self) -> None:
        """Drops weights that no run of the store needs any longer."""

    @cached_property
    def plan(self) -> Plan:
        """The steps of all its studies."""
        return Plan(*self.studies)

    @property
    def device(self) -> str:
        """Where it is computed: `auto` is a GPU where there is one."""
        chosen = self.studies[0].device
        if chosen != "auto":
            return str(usable_device(chosen))
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
        local = self._local(observer, seconds_between_checkpoints)
        executor: Executor = local if processes == 1 else Processes(local, self.out, processes - 1)
        try:
            outcome = executor.run(self.plan, observer)
        except BaseException:
            with suppress(InputError):  # such as a full disk, which has just been told of
                self.write_records()
            raise
        self._tidied(observer)
        self.write_records()
        return outcome

    def work(self, observer: Observer) -> Outcome:
        """Computes in this process, beside another that has written down what to do."""
        return self._local(observer, SECONDS_BETWEEN_CHECKPOINTS).run(self.plan, observer)

    def _local(self, observer: Observer, seconds_between_checkpoints: float) -> Local:
        checkpoints = self.store.root / "checkpoints"
        compute = Compute(self.store, checkpoints, self.device, os.cpu_count() or 0, seconds_between_checkpoints)
        spent, began = 0.0, time.monotonic()

        def after_step() -> None:
            nonlocal spent
            since = time.monotonic()
            if spent <= SHARE_OF_TIDYING * (since - began):
                self._tidied(observer)
                spent += time.monotonic() - since

        return Local(self.store, compute, after_step)

    def _tidied(self, observer: Observer) -> None:
        if all(study.keep == "all" for study in self.studies):
            return
        try:
            self.tidy()
        except InputError as error:  # a run of somebody else that cannot be read: then nothing is dropped
            observer.trouble(f"nothing is tidied away: {error}")


def import_all(modules: Iterable[str]) -> None:
    """Imports the modules that a study needs for methods, networks or data of its own."""
    for module in modules:
        try:
            import_module(module)
        except Exception as error:  # whatever a stranger's module does when it is imported
            raise InputError(f"module {module!r} cannot be imported: {type(error).__name__}: {error}") from error


def read_json(path: Path, *keys: str) -> dict[str, object]:
    """A file of this library's own that must hold some keys."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {**told, **{key: told[key] for key in keys}}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def write(path: Path, text: str) -> None:
    """Under another name first, so that nobody sees half a file."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        discard(part)
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
