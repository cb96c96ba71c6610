"""Trainings of one shape side by side, on one GPU; what has to be pruned or loaded is, meanwhile."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import torch

from ..core.errors import InputError
from ..data import Feed
from ..machine import one_thread
from ..training import Training
from ..training.engine import Eager
from ..training.engines import Engines
from ..training.loop import Entry, train_together
from ..training.unavailable import EngineUnavailable
from .compute import Compute, StepFailed
from .executors import Local, Outcome
from .leases import Leases
from .observer import Observer
from .plan import Plan
from .queue import Queue
from .steps import Step, Train
from .store import Damaged, FolderStore, Missing

Shape = tuple[Training, int, int | None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packed:
    """This process: packs of trainings on its device, and threads for everything else.

    Each training gets the result that it would get alone: from the fused kernels to the bit, else but for rounding.
    """

    store: FolderStore
    compute: Compute
    engines: Engines
    after_step: Callable[[], None]

    def run(self, plan: Plan, observer: Observer) -> Outcome:
        """Works until nothing is left that can be computed."""
        queue = Queue(plan, self.store, Leases(self.store.root), observer)
        pruning, loading = (ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("prune", "load"))
        with one_thread(self.compute.device), queue:
            try:
                _Shift(self, queue, pruning, loading).work()
            finally:
                for pool in (pruning, loading):
                    pool.shutdown(cancel_futures=True)
            return Outcome(queue.computed, plan.todo(self.store).blocked, tuple(queue.failed.values()))


@dataclass(frozen=True)
class _Pack:
    """Trainings that go together, and what they start from, which is being loaded."""

    steps: list[Train]
    by_rows: bool  # of images that the engine has itself
    entries: Future[list[Entry]]


class _Shift:
    """The work on one plan: packs here, prunings in one thread, and loading in another, so that it waits for none."""

    def __init__(self, packed: Packed, queue: Queue, pruning: ThreadPoolExecutor, loading: ThreadPoolExecutor) -> None:
        self.compute, self.engines, self.after_step = packed.compute, packed.engines, packed.after_step
        self.queue, self.pruning, self.loading = queue, pruning, loading
        self.others = Local(packed.store, packed.compute, packed.after_step)
        self.pending: set[Future[None]] = set()  # prunings under way
        self.prepared: _Pack | None = None
        self._feeds: dict[tuple[Training, int], Feed] = {}

    def work(self) -> None:
        """Until nothing is left."""
        while True:
            self._prune_beside()
            pack = self.prepared or self._taken(self._filled if self.pending else self._largest)
            self.prepared = None
            if pack is not None:
                self.prepared = self._taken(self._filled)  # the next one, if it is full already
                self._train(pack)
                self.after_step()
            elif self.pending:
                wait(self.pending, return_when=FIRST_COMPLETED)
            elif not self._waited():
                return

    def _prune_beside(self) -> None:
        """Gives what is ready and no training to the thread, and looks at what became of the last."""
        for step in self.queue.take(_no_trainings, wait=False):
            self.pending.add(self.pruning.submit(self.others.one, step, self.queue, self.queue.observer))
        for future in [future for future in self.pending if future.done()]:
            self.pending.remove(future)
            future.result()  # raises what went wrong there

    def _waited(self) -> bool:
        """Waits for what other processes hold, and does what they leave; False if nothing is left."""
        steps = self.queue.take(lambda ready: _no_trainings(ready)[:1] or self._largest(ready))
        trainings = [step for step in steps if isinstance(step, Train)]
        if trainings:
            self._train(self._loading(trainings))
        for step in _no_trainings(steps):
            self.others.one(step, self.queue, self.queue.observer)
        return bool(steps)

    def _taken(self, choose: Callable[[Sequence[Step]], Sequence[Step]]) -> _Pack | None:
        steps = [step for step in self.queue.take(choose, wait=False) if isinstance(step, Train)]
        return self._loading(steps) if steps else None

    def _loading(self, steps: list[Train]) -> _Pack:
        training = steps[0].training
        by_rows = self.engines.by_rows(training, self.compute.dataset(training))
        return _Pack(steps, by_rows, self.loading.submit(self._entries, steps, by_rows))

    def _largest(self, ready: Sequence[Step]) -> Sequence[Train]:
        """The largest group of one shape, as many as go together."""
        groups: dict[Shape, list[Train]] = defaultdict(list)
        for step in ready:
            if isinstance(step, Train):
                groups[step.shape].append(step)
        largest = max(groups.values(), key=len, default=[])
        return largest[: self._room(largest)] if len(largest) > 1 else largest

    def _filled(self, ready: Sequence[Step]) -> Sequence[Train]:
        """The same, if it is full: else prunings that are under way may add to it."""
        pack = self._largest(ready)
        return pack if pack and len(pack) == self._room(pack) else []

    def _room(self, steps: Sequence[Train]) -> int:
        training = steps[0].training
        return self.engines.room(training, self.compute.dataset(training))

    def _train(self, pack: _Pack) -> None:
        """Trains a pack and keeps what comes out."""
        steps = pack.steps
        training, first, last = steps[0].shape
        kind: type = Eager
        try:
            engine = self.engines.engine(training, self.compute.dataset(training), len(steps))
            kind = type(engine)
            entries = pack.entries.result()
            if pack.by_rows and isinstance(engine, Eager):  # another one was expected
                entries = self._entries(steps, by_rows=False)
            results = train_together(training, entries, engine, first=first, last=last)
        except (Damaged, Missing) as error:
            self._give_back(steps)
            self.queue.observer.trouble(str(error))
        except EngineUnavailable as error:  # seen only when it was tried
            self.engines.refuse(training, kind, str(error))
            self._give_back(steps)
        except torch.cuda.OutOfMemoryError as error:
            self._halve(training, len(steps), error)
            self._give_back(steps)
        except InputError:  # of the data or the machine: nothing else would go better
            raise
        except Exception as error:  # whatever a network of the user's own does: to all of them
            _log.debug("a pack of %d", len(steps), exc_info=True)
            for step in steps:
                self.queue.fail(step, StepFailed(f"train {step.key}: {type(error).__name__}: {error}"))
        else:
            how = {"engine": kind.__name__.lower(), "pack": len(steps)}
            for step, entry, result in zip(steps, entries, results, strict=True):
                self.queue.finish(step, self.compute.made(step, entry, result, **how))
                self.compute.forget(step)

    def _halve(self, training: Training, count: int, error: Exception) -> None:
        if count == 1:
            raise InputError(f"{training.network.name}: the GPU's memory does not hold one network") from error
        self.engines.most = count // 2
        self.queue.observer.trouble(
            f"{count} networks do not fit into the GPU's memory: {self.engines.most} at once are tried"
        )

    def _give_back(self, steps: Sequence[Train]) -> None:
        for step in steps:
            self.queue.release(step)

    def _entries(self, steps: Sequence[Train], by_rows: bool) -> list[Entry]:
        """What trainings start from. With `by_rows` their images lie on the device already, for all seeds."""
        feed = self._rows if by_rows else self.compute.feed
        return [self.compute.entry(step, feed(step.training, step.seed), self.queue.observer.epoch) for step in steps]

    def _rows(self, training: Training, seed: int) -> Feed:
        if (training, seed) not in self._feeds:
            self._feeds[training, seed] = training.feed(seed, dataset=self.compute.dataset(training))
        return self._feeds[training, seed]


def _no_trainings(ready: Sequence[Step]) -> list[Step]:
    return [step for step in ready if not isinstance(step, Train)]
