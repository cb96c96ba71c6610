"""Trainings of one shape side by side, on one GPU; what has to be pruned is pruned meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import torch

from ..core.errors import InputError
from ..data import Feed
from ..machine import one_thread
from ..training import Training
from ..training.engine import Eager
from ..training.engines import Engines
from ..training.loop import Entry, train_together
from ..training.unavailable import EngineUnavailable
from .compute import Compute
from .executors import Local, Outcome
from .leases import Leases
from .observer import Observer
from .plan import Plan
from .queue import Queue
from .steps import Step, Train
from .store import Damaged, FolderStore, Missing

Shape = tuple[Training, int, int | None]


@dataclass
class Packed:
    """This process: packs of trainings on its device, and a thread for everything else.

    Each training gets the result that it would get alone: from the fused kernels to the bit, else but for rounding.
    """

    store: FolderStore
    compute: Compute
    engines: Engines
    after_step: Callable[[], None]
    _feeds: dict[tuple[Training, int], Feed] = field(default_factory=dict)

    def run(self, plan: Plan, observer: Observer) -> Outcome:
        """Works until nothing is left that can be computed."""
        queue = Queue(plan, self.store, Leases(self.store.root), observer)
        with one_thread(self.compute.device), queue, ThreadPoolExecutor(1, thread_name_prefix="prune") as beside:
            others = Local(self.store, self.compute, self.after_step)
            pending: set[Future[None]] = set()
            while True:
                for step in queue.take(_other_than_trainings, wait=False):
                    pending.add(beside.submit(others.one, step, queue, observer))
                pending -= _looked_at({future for future in pending if future.done()})
                pack = queue.take(self._filled if pending else self._next, wait=False)
                if pack:
                    self._together([step for step in pack if isinstance(step, Train)], queue, observer)
                    self.after_step()
                elif pending:
                    wait(pending, return_when=FIRST_COMPLETED)
                elif not self._last(queue, observer):
                    return Outcome(queue.computed, plan.todo(self.store).blocked, tuple(queue.failed.values()))

    def _last(self, queue: Queue, observer: Observer) -> bool:
        """Waits for what other processes hold, and computes one step of what they leave; False if nothing is left."""
        steps = queue.take()
        for step in steps:
            Local(self.store, self.compute, self.after_step).one(step, queue, observer)
        return bool(steps)

    def _next(self, ready: Sequence[Step]) -> Sequence[Train]:
        """The largest group of one shape, as many as go together."""
        groups: dict[Shape, list[Train]] = defaultdict(list)
        for step in ready:
            if isinstance(step, Train):
                groups[step.shape].append(step)
        largest = max(groups.values(), key=len, default=[])
        return largest[: self._room(largest)] if len(largest) > 1 else largest

    def _filled(self, ready: Sequence[Step]) -> Sequence[Train]:
        """The same, if it is full: else the prunings that are under way may add to it."""
        pack = self._next(ready)
        return pack if pack and len(pack) == self._room(pack) else []

    def _room(self, steps: Sequence[Train]) -> int:
        training = steps[0].training
        return self.engines.room(training, self.compute.dataset(training))

    def _together(self, steps: list[Train], queue: Queue, observer: Observer) -> None:
        """Trains a pack and keeps what comes out."""
        training, first, last = steps[0].shape
        engine = self.engines.engine(training, self.compute.dataset(training), len(steps))
        try:
            entries = self._entries(steps, isinstance(engine, Eager), queue, observer)
            results = train_together(training, entries, engine, first=first, last=last) if entries else []
        except EngineUnavailable as error:  # seen only when it was tried
            self.engines.refuse(training, type(engine), str(error))
            self._give_back(steps, queue)
            return
        except torch.cuda.OutOfMemoryError as error:
            if len(steps) == 1:
                raise InputError(f"{training.network.name}: the GPU's memory does not hold one network") from error
            self.engines.most = len(steps) // 2
            observer.trouble(f"{len(steps)} networks do not fit into the GPU's memory: {self.engines.most} are tried")
            self._give_back(steps, queue)
            return
        how = {"engine": type(engine).__name__.lower(), "pack": len(entries)}
        for step, entry, result in zip(steps, entries, results, strict=False):  # none, if one was damaged
            queue.finish(step, self.compute.made(step, entry, result, **how))
            self.compute.forget(step)

    def _entries(self, steps: list[Train], eager: bool, queue: Queue, observer: Observer) -> list[Entry]:
        """What they start from; none, and all of them left for later, if something of it turns out damaged."""
        entries = []
        for step in steps:
            feed = self.compute.feed(step.training, step.seed) if eager else self._rows(step.training, step.seed)
            try:
                entries.append(self.compute.entry(step, feed, observer.epoch))
            except (Damaged, Missing) as error:
                queue.put_back(step, error)
                self._give_back([other for other in steps if other is not step], queue)
                return []
        return entries

    def _give_back(self, steps: Sequence[Train], queue: Queue) -> None:
        for step in steps:
            queue.release(step)

    def _rows(self, training: Training, seed: int) -> Feed:
        """A feed that names rows of the data: the images themselves lie on the device already, for all seeds."""
        if (training, seed) not in self._feeds:
            self._feeds[training, seed] = training.feed(seed, dataset=self.compute.dataset(training))
        return self._feeds[training, seed]


def _other_than_trainings(ready: Sequence[Step]) -> list[Step]:
    return [step for step in ready if not isinstance(step, Train)]


def _looked_at(done: set[Future[None]]) -> set[Future[None]]:
    """Raises what went wrong in the thread."""
    for future in done:
        future.result()
    return done
