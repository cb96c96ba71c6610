"""What can be run: one study or a grid of them, each in a folder beside a store."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..core.errors import InputError, whole
from ..core.masks import Masks
from ..machine import AUTO, automatic
from ..machine import device as usable_device
from ..training.choosing import Engines
from .collecting import collect
from .errand import Errand
from .findings import Rows
from .plan import Plan
from .plan.study import Study
from .store import FolderStore
from .store.files import Sharing, explained
from .work.compute import Compute
from .work.executors import Executor, Local, Processes
from .work.observer import Observer
from .work.packed import Packed
from .work.queue import Outcome

if TYPE_CHECKING:
    from .runs import Run

SHARE_OF_TIDYING = 0.05  # of the time, at most


class Job(ABC):
    """Studies whose missing steps are computed together, and a folder where what came out is written."""

    def __init__(self, studies: Iterable[Study], out: Path, store: FolderStore) -> None:
        self.studies, self.out, self.store = tuple(studies), out, store

    @property
    @abstractmethod
    def runs(self) -> Mapping[str, Run]:
        """Each of its studies as a run of its own, by what tells it apart from the others: nothing, of a single one."""

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
    def is_written(self) -> bool:
        """Whether the folder says that just this is being run."""

    def differences(self) -> list[str]:
        """The keys of the study whose values the last run in the folder had otherwise, and that change results."""
        return []

    @cached_property
    def plan(self) -> Plan:
        """The steps of all its studies."""
        return Plan(*self.studies)

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        chosen = self.studies[0].device
        return torch.device(automatic()) if chosen == AUTO else usable_device(chosen)

    def go(self, observer: Observer | None = None, processes: int = 1, pack: int | None = None) -> Outcome:
        """Computes what is missing; what was there before is found again.

        `processes` work on it at once; on a GPU `pack` networks are trained at once, None: as many as are fastest.
        """
        observer = observer or Observer()
        processes, pack = whole("processes", processes, 1), None if pack is None else whole("pack", pack, 1)
        self._check_layers()
        with explained("folder", self.out):
            shared = Sharing(self.out)
        with shared as folder:
            if folder.alone:
                if other := self.differences():
                    observer.trouble(
                        f"the last run in {self.out} had other settings ({', '.join(other)}); this one takes its "
                        "place, and what both computed stays in the store"
                    )
                self.write_study()
                folder.share()
            elif not self.is_written():
                raise InputError(f"another process is running another study in {self.out}: choose another folder")
            if (pack or 1) > 1 and self.device.type != "cuda":
                observer.trouble(f"only a GPU trains networks side by side: on {self.device} they take turns")
            here = self._executor(observer, pack)
            helpers = min(processes, len(self.plan.todo(self.store).missing)) - 1  # more would find nothing to do
            command = Errand(self.out, os.getpid(), pack).command
            return self._run(here if helpers < 1 else Processes(here, command, helpers), observer)

    def _run(self, executor: Executor, observer: Observer) -> Outcome:
        try:
            outcome = executor.run(self.plan, observer)
        except BaseException:
            with suppress(InputError):  # such as a full disk, which has just been told of
                self.write_records()
            raise
        self._tidy(observer)
        self.write_records()
        return outcome

    def work(self, observer: Observer, pack: int | None = None) -> Outcome:
        """Computes in this process, beside another that has written down what to do."""
        return self._executor(observer, pack).run(self.plan, observer)

    def _executor(self, observer: Observer, pack: int | None) -> Executor:
        """For this process: one training after the other on a CPU, packs of them on a GPU."""
        compute = Compute(self.store, self.device, self.plan.probe_every, observer.trouble)
        spent, began = 0.0, time.monotonic()

        def after_step() -> None:
            nonlocal spent
            since = time.monotonic()
            if spent <= SHARE_OF_TIDYING * (since - began):
                self._tidy(observer)
                spent += time.monotonic() - since

        if pack is None and self.device.type != "cuda":
            return Local(self.store, compute, after_step)
        return Packed(self.store, compute, Engines(self.device, pack, observer.trouble), after_step)

    def _check_layers(self) -> None:
        """Looks for the layers that `include` and `exclude` name before anything is trained."""
        for study in {(s.training.network, s.include, s.exclude): s for s in self.studies}.values():
            if study.include or study.exclude:
                feed = study.training.feed(study.seeds[0])
                Masks.dense(study.training.build(len(feed.classes), feed.channels), study.include, study.exclude)

    def _tidy(self, observer: Observer) -> None:
        if all(study.keep == "all" for study in self.studies):
            return
        try:
            collect(self.store, self.studies)
        except InputError as error:  # a run of somebody else that cannot be read: then nothing is dropped
            observer.trouble(f"nothing is tidied away: {error}")
