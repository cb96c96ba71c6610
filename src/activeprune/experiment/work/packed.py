"""Trainings of one shape side by side, on one GPU; what has to be pruned, loaded or kept is, meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import torch

from ...core.errors import InputError, in_a_line
from ...machine import one_thread
from ...training import Case, Result, Span, Training
from ...training.choosing import Engines
from ...training.engine import Eager
from ...training.loop import same_kernels, train_together
from ...training.unavailable import EngineUnavailable
from ..plan import Plan
from ..plan.steps import Measure, Step, Train
from ..store import Damaged, FolderStore, Missing
from ..store.leases import Leases
from ..store.provenance import Provenance
from .compute import Compute
from .executors import Local
from .observer import Observer
from .queue import Outcome, Queue
from .turns import Room, Turns


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
        with one_thread(self.compute.device), same_kernels(), queue:  # for prunings, too, whatever is trained meanwhile
            shift = _Shift(self, queue)
            try:
                shift.work()
            finally:
                shift.close()
            return queue.outcome()


@dataclass(frozen=True)
class _Pack:
    """Trainings that go together, and what they start from, which is being loaded."""

    steps: list[Train]
    by_rows: bool  # of images that the engine has itself
    cases: Future[list[Case]]


class _Shift:
    """The work on one plan: packs are trained here. Threads prune, measure, load the next pack, and keep what came out.

    What is ready may be pruned, and a full pack may be loaded, as soon as a thread has put into the store what it
    needs. How many go together is found out here alone, since that may have to be measured.
    """

    def __init__(self, packed: Packed, queue: Queue) -> None:
        self.compute, self.engines, self.after_step = packed.compute, packed.engines, packed.after_step
        self.queue, self.turns = queue, Turns()
        self.others = Local(packed.store, packed.compute, packed.after_step)
        self.prepared: _Pack | None = None
        self.under_way: set[Future[None]] = set()  # prunings, and results that are being kept
        self.measuring: set[Future[None]] = set()  # which no training waits for
        self.over = False
        pools = (ThreadPoolExecutor(1, name) for name in ("prune", "measure", "load", "keep"))
        self._pruning, self._measuring, self._loading, self._keeping = pools
        self._kept: Future[None] | None = None  # or about to be: the latest pack
        self._rooms: dict[Training, int] = {}
        self._planned: Counter[Training] = Counter()  # how many may be ready at a time
        self._lock = threading.RLock()  # of `prepared`, `under_way` and `over`

    def work(self) -> None:
        """Until nothing is left."""
        while True:
            self._look_after()
            self._prune_beside()
            if (pack := self._next()) is not None:
                self._prepare(self._room)
                self._train(pack)
            elif busy := self._busy():
                wait(busy, return_when=FIRST_COMPLETED)
            elif not self._wait_for_others():
                return

    def close(self) -> None:
        """Ends the threads. What was trained is kept first, whatever has happened."""
        with self._lock:
            self.over = True
        self._keeping.shutdown()
        for pool in (self._pruning, self._measuring, self._loading):
            pool.shutdown(cancel_futures=True)
        if self._kept in self.under_way and (error := self._kept.exception()) is not None:  # else it has been raised
            self.queue.observer.trouble(str(error))

    def _busy(self) -> set[Future[None]]:
        with self._lock:
            return self.under_way | self.measuring

    def _look_after(self) -> None:
        """Raises what went wrong in the threads."""
        with self._lock:
            done = {future for future in self.under_way | self.measuring if future.done()}
            self.under_way -= done
            self.measuring -= done
        for future in done:
            future.result()

    def _prune_beside(self) -> None:
        """Gives what is ready and no training to the thread."""
        with self._lock:
            for step in [] if self.over else self.queue.take(_no_trainings, wait=False):
                if isinstance(step, Measure):
                    self.measuring.add(self._measuring.submit(self._measure, step))
                else:
                    self.under_way.add(self._pruning.submit(self._prune, step))

    def _prune(self, step: Step) -> None:
        self.others.one(step, self.queue)
        self._prepare(self._rooms.get)

    def _measure(self, step: Step) -> None:
        """When all that the next pack waits for is done: until it is trained, the device has time."""
        while first := self._unfinished():
            wait(first)
        self.others.one(step, self.queue)

    def _unfinished(self) -> set[Future[None]]:
        with self._lock:
            return {future for future in self.under_way if not future.done()}

    def _next(self) -> _Pack | None:
        """The pack that is prepared, or one that is full, or what there is if nothing can add to it."""
        with self._lock:
            pack, self.prepared = self.prepared, None
            return pack or self._take(self.turns.full if self.under_way else self.turns.largest, self._room)

    def _prepare(self, room: Room) -> None:
        """Takes and loads the next pack, if it is full already."""
        with self._lock:
            if self.prepared is None and not self.over:
                self.prepared = self._take(self.turns.full, room)

    def _wait_for_others(self) -> bool:
        """Waits for what other processes hold, and does what they leave; False if nothing is left."""
        steps = self.queue.take(lambda ready: _no_trainings(ready)[:1] or self.turns.largest(ready, self._room))
        trainings = [step for step in steps if isinstance(step, Train)]
        if trainings:
            self._train(self._pack_of(trainings))
        for step in _no_trainings(steps):
            self.others.one(step, self.queue)
        return bool(steps)

    def _take(self, choose: Callable[[Sequence[Step], Room], Sequence[Train]], room: Room) -> _Pack | None:
        steps = self.queue.take(lambda ready: choose(ready, room), wait=False)
        trainings = [step for step in steps if isinstance(step, Train)]
        return self._pack_of(trainings) if trainings else None

    def _pack_of(self, steps: list[Train]) -> _Pack:
        training = steps[0].training
        by_rows = self.engines.by_rows(training, self.compute.loaded.dataset(training))
        return _Pack(steps, by_rows, self._loading.submit(self._cases, steps, by_rows))

    def _room(self, training: Training) -> int:
        if training not in self._planned:  # some that were there may be gone since it was counted
            self._planned |= self.queue.todo().abreast()
        dataset = self.compute.loaded.dataset(training)
        self._rooms[training] = room = self.engines.room(training, dataset, self._planned[training])
        return room

    def _train(self, pack: _Pack) -> None:
        """Trains a pack and keeps what comes out, or does what an error asks for: once that is over, because an error
        holds on to its engine.
        """
        if (then := self._tried(pack)) is not None:
            then()

    def _tried(self, pack: _Pack) -> Callable[[], None] | None:
        """What is to be done instead; None if it went well, or is settled."""
        steps = pack.steps
        training, first, last = steps[0].shape
        kind: type = Eager
        try:
            dataset = self.compute.loaded.dataset(training)
            kind = self.engines.kind(training, dataset)  # to begin with
            engine = self.engines.engine(training, dataset, len(steps))
            kind = type(engine)
            cases = pack.cases.result()
            if pack.by_rows and isinstance(engine, Eager):  # another one was expected
                cases = self._cases(steps, by_rows=False)
            results = train_together(training, cases, engine, Span(first, last))
        except EngineUnavailable as error:  # seen only when it was tried
            return partial(self._slower, steps, kind, str(error))
        except torch.cuda.OutOfMemoryError as error:
            if len(steps) > 1:
                return partial(self._half, steps)
            if kind is not Eager:
                return partial(self._slower, steps, kind, "the GPU's memory does not hold one network and its graph")
            why = "the GPU's memory does not hold one network: try a smaller batch, or a GPU that nobody else uses"
            raise InputError(f"{training.network.name}: {why}") from error
        except Exception as error:
            if len(steps) > 1 and not isinstance(error, InputError | Damaged | Missing):  # of one network, perhaps
                return partial(self._one_by_one, steps, in_a_line(error))
            self.queue.settle(steps, error)
        else:
            how = Provenance(engine=kind.__name__.lower(), pack=len(steps))
            self._hand_over(partial(self._keep, steps, cases, results, how))
        return None

    def _slower(self, steps: Sequence[Train], kind: type, why: str) -> None:
        self.engines.refuse(steps[0].training, kind, why)
        self._pack_anew(steps)

    def _half(self, steps: Sequence[Train]) -> None:
        half, training = len(steps) // 2, steps[0].training
        self.engines.limit(training, half)
        self.queue.observer.trouble(
            f"{training.network.name}: {len(steps)} networks do not fit into the GPU's memory: {half} at once at most"
        )
        self._pack_anew(steps)

    def _one_by_one(self, steps: Sequence[Train], why: str) -> None:
        """Those of a pack that an error ended, so that it stays with whom it belongs to."""
        name = steps[0].training.network.name
        self.queue.observer.trouble(f"{name}: a pack of {len(steps)} failed ({why}): they are trained one by one")
        for step in steps:
            self._train(self._pack_of([step]))

    def _hand_over(self, keep: Callable[[], None]) -> None:
        """Lets the thread keep a pack's results, once those of the pack before it are in the store."""
        before, self._kept = self._kept, self._keeping.submit(keep)
        with self._lock:
            self.under_way.add(self._kept)
        if before is not None:
            before.result()

    def _keep(self, steps: list[Train], cases: list[Case], results: list[Result], how: Provenance) -> None:
        """Puts what came out into the store, and begins with what was waiting for it: that comes first."""
        for waited_for in (True, False):
            for step, case, result in zip(steps, cases, results, strict=True):
                if (step.key in self.queue.plan.pruned) is waited_for:
                    self.queue.finish(step, self.compute.made(step, case, result, how))
                    self.compute.forget(step)
            if not self.over:
                self._prune_beside()
        if not self.over:
            self._prepare(self._rooms.get)
            self.after_step()

    def _pack_anew(self, steps: Sequence[Train]) -> None:
        """Gives a pack back, and the one that is prepared: other numbers may go together now."""
        with self._lock:
            self._rooms.clear()
            for step in [*steps, *(self.prepared.steps if self.prepared is not None else ())]:
                self.queue.give_back(step)
            self.prepared = None

    def _cases(self, steps: Sequence[Train], by_rows: bool) -> list[Case]:
        """What trainings start from, with their first epochs being drawn."""
        loaded = self.compute.loaded
        feed = loaded.feed_by_rows if by_rows else loaded.feed
        tell = self.queue.observer.epoch
        cases = [self.compute.case(step, feed(step.training, step.seed), tell) for step in steps]
        for step, case in zip(steps, cases, strict=True):
            case.expect(step.first)
        return cases


def _no_trainings(ready: Sequence[Step]) -> list[Step]:
    return [step for step in ready if not isinstance(step, Train)]
