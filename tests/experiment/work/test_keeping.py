"""What came out of a pack is kept while the next one is trained: later, but never lost, and never told too early."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.data import ahead, draws
from activeprune.experiment.plan.steps import Measure, Prune, Step, Train
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.artifacts import RECORD
from activeprune.experiment.store.leases import Leases
from activeprune.experiment.work.executors import Local
from activeprune.experiment.work.observer import Observer
from activeprune.training.loop import train_together
from tests.experiment.makers import contents

SECONDS = 60  # until a test that would wait for ever fails
CHANGES = {"variants": ["plain"], "cycles": 1, "seeds": 6}


def run_of(folder: Path, **changes) -> Run:
    return started("smoke", folder / "run", changes={**CHANGES, **changes})


def is_for_keeping(pool: ThreadPoolExecutor) -> bool:
    return pool._thread_name_prefix == "keep"


class Scene:
    """Packs that are trained, and puts of trainings, each with something to do first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.packs: list[set[int]] = []  # the seeds of each
        self.before_pack = lambda number: None
        self.before_put = lambda key: None
        put = FolderStore.put

        def training(of, cases, *rest, **options):
            self.packs.append({case.feed.seed for case in cases})
            self.before_pack(len(self.packs))
            return train_together(of, cases, *rest, **options)

        def putting(store: FolderStore, key: str, parts: dict, provenance: dict) -> None:
            if provenance["kind"] == "train":
                self.before_put(key)
            put(store, key, parts, provenance)

        monkeypatch.setattr("activeprune.experiment.work.packed.train_together", training)
        monkeypatch.setattr(FolderStore, "put", putting)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_next_pack_begins_before_the_last_one_is_in_the_store(tmp_path: Path, scene: Scene) -> None:
    begun = threading.Event()
    scene.before_pack = lambda number: begun.set() if number == 2 else None
    scene.before_put = lambda key: None if begun.wait(SECONDS) else pytest.fail("the second pack waited")
    run = run_of(tmp_path)
    run.go(pack=3)
    assert not run.plan.todo(run.store).missing


def test_what_follows_from_a_pack_is_begun_while_the_next_one_is_trained(tmp_path: Path, scene: Scene) -> None:
    pruning = threading.Event()

    class Listening(Observer):
        def started(self, step: Step) -> None:
            if isinstance(step, Prune):
                pruning.set()

    scene.before_pack = lambda number: (
        None if number != 2 or pruning.wait(SECONDS) else pytest.fail("nothing is pruned")
    )
    run_of(tmp_path).go(Listening(), pack=3)
    assert len(scene.packs) == 4


def test_a_pack_that_prunings_fill_is_loaded_while_another_is_trained(tmp_path: Path, scene: Scene) -> None:
    """The retrainings of the first three seeds, while the dense trainings of the others are under way."""
    loaded = threading.Event()

    class Listening(Observer):
        def started(self, step: Step) -> None:
            if isinstance(step, Train) and step.masks is not None:
                loaded.set()

    scene.before_pack = lambda number: None if number != 2 or loaded.wait(SECONDS) else pytest.fail("nothing is loaded")
    run_of(tmp_path).go(Listening(), pack=3)
    assert scene.packs[2] == {0, 1, 2}


def test_at_most_one_pack_waits_to_be_kept(tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is put before the third pack begins or somebody waits for what is being kept."""
    run = run_of(tmp_path, seeds=9)
    missing: list[int] = []
    keeping: list[Future] = []
    awaited = threading.Event()
    submit, result = ThreadPoolExecutor.submit, Future.result

    def submitted(pool: ThreadPoolExecutor, work, *arguments) -> Future:
        future = submit(pool, work, *arguments)
        if is_for_keeping(pool):
            keeping.append(future)
        return future

    def waiting(future: Future, timeout: float | None = None):
        if future in keeping and not future.done():
            awaited.set()
        return result(future, timeout)

    def before_pack(number: int) -> None:
        missing.append(3 * (number - 1) - sum(run.store.has(step.key, RECORD) for step in run.plan.trainings))
        if number == 3:
            awaited.set()

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submitted)
    monkeypatch.setattr(Future, "result", waiting)
    scene.before_pack = before_pack
    scene.before_put = lambda key: None if awaited.wait(SECONDS) else pytest.fail("nobody waits")
    run.go(pack=3)
    assert len(missing) == 6
    assert max(missing) <= 3


def test_nothing_is_told_and_no_lease_is_given_back_before_it_is_in_the_store(tmp_path: Path, scene: Scene) -> None:
    run = run_of(tmp_path)
    finished: set[str] = set()

    class Listening(Observer):
        def finished(self, step: Step, seconds: float) -> None:
            assert run.store.has(step.key, RECORD)
            finished.add(step.key)

    def before_put(key: str) -> None:
        assert Leases(run.store.root).holder(key) is not None
        assert key not in finished

    scene.before_put = before_put
    outcome = run.go(Listening(), pack=3)
    assert len(finished) == outcome.computed == 18
    assert not any(Leases(run.store.root).holder(key) for key in run.plan.steps)


def test_an_interrupt_loses_nothing_that_was_trained(
    tmp_path: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what waits to be kept: the first put begins when the run is being closed."""
    closing = threading.Event()
    shutdown = ThreadPoolExecutor.shutdown

    def shut_down(pool: ThreadPoolExecutor, *arguments, **options) -> None:
        if is_for_keeping(pool):
            closing.set()
        shutdown(pool, *arguments, **options)

    def before_pack(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    def before_put(key: str) -> None:
        assert closing.wait(SECONDS)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shut_down)

    scene.before_pack, scene.before_put = before_pack, before_put
    run = run_of(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run.go(pack=3)
    assert sum(run.store.has(step.key, RECORD) for step in run.plan.trainings) == 3
    assert not any(Leases(run.store.root).holder(key) for key in run.plan.steps)
    scene.before_pack = lambda number: None
    run.go(pack=3)
    alone = run_of(tmp_path / "alone")
    alone.go()
    assert contents(run.store.root) == contents(alone.store.root)


@pytest.mark.parametrize("seeds", [3, 6, 9])
def test_what_cannot_be_kept_ends_the_run(tmp_path: Path, scene: Scene, seeds: int) -> None:
    """Whether another pack follows or not."""

    def before_put(key: str) -> None:
        raise ap.InputError("the disk is full")

    scene.before_put = before_put
    run = run_of(tmp_path, seeds=seeds)
    with pytest.raises(ap.InputError, match="the disk is full"):
        run.go(pack=3)
    assert len(scene.packs) <= 2
    assert not any(Leases(run.store.root).holder(key) for key in run.plan.steps)


def test_an_interrupt_does_not_hide_that_a_result_was_not_kept(tmp_path: Path, scene: Scene) -> None:
    interrupted, told = threading.Event(), []

    class Listening(Observer):
        def trouble(self, line: str) -> None:
            told.append(line)

    def before_pack(number: int) -> None:
        if number == 2:
            interrupted.set()
            raise KeyboardInterrupt

    def before_put(key: str) -> None:
        interrupted.wait(SECONDS)
        raise ap.InputError("the disk is full")

    scene.before_pack, scene.before_put = before_pack, before_put
    with pytest.raises(KeyboardInterrupt):
        run_of(tmp_path).go(Listening(), pack=3)
    assert told[-1] == "the disk is full"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bool]]:
    """Seed and epoch of all that is drawn, and whether that was in the thread for it."""
    found: list[tuple[int, int, bool]] = []

    def noting(seed: int, epoch: int, n: int):
        found.append((seed, epoch, threading.current_thread().name.startswith("draws")))
        return draws(seed, epoch, n)

    monkeypatch.setattr(ahead, "draws", noting)
    return found


def test_the_first_epoch_of_the_next_pack_is_drawn_while_this_one_is_trained(
    tmp_path: Path, scene: Scene, drawn: list
) -> None:
    def before_pack(number: int) -> None:
        for _ in range(SECONDS * 100):
            if number != 1 or {seed for seed, *_ in drawn} == {*range(6)}:
                return
            threading.Event().wait(0.01)
        pytest.fail("seeds 3 to 5 are not drawn")

    scene.before_pack = before_pack
    run_of(tmp_path).go(pack=3)
    assert all(elsewhere for *_, elsewhere in drawn)


@pytest.mark.usefixtures("a_checkpoint_after_every_epoch")
def test_where_a_checkpoint_goes_on_its_next_epoch_is_drawn(tmp_path: Path, drawn: list) -> None:
    class Stumbling(Observer):
        def epoch(self, step: Step, epoch, epochs: int) -> None:
            if (
                epoch.epoch == 1 and step.seed == 1
            ):  # seed 2 has a checkpoint after its first epoch, the others one more
                raise KeyboardInterrupt

    run = run_of(tmp_path, seeds=3, epochs="3ep")
    with pytest.raises(KeyboardInterrupt):
        run.go(Stumbling(), pack=3)
    drawn.clear()
    run.go(pack=3)
    first = {(seed, epoch) for seed, epoch, elsewhere in drawn if elsewhere}
    assert first == {(0, 2), (1, 2), (2, 1), (0, 0), (1, 0), (2, 0)}  # the last ones are of the retrainings


def test_nothing_is_measured_while_a_pack_waits_for_a_pruning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network before its training could be measured as soon as it is pruned, and its training could begin, too."""
    pruning: set[str] = set()
    met: list[set[str]] = []
    one = Local.one

    def watched(local: Local, step: Step, *rest) -> None:
        if isinstance(step, Measure):
            met.append({*pruning})
        one(local, step, *rest)
        pruning.discard(step.key)

    monkeypatch.setattr(Local, "one", watched)
    run = run_of(tmp_path, measure="dnr", variants=["plain", "ap_lite"], seeds=3)
    submit = ThreadPoolExecutor.submit

    def submitted(pool: ThreadPoolExecutor, work, *arguments):
        pruning.update(step.key for step in arguments if isinstance(step, Prune))
        return submit(pool, work, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submitted)
    outcome = run.go(pack=3)
    assert outcome.failed == outcome.blocked == ()
    assert len(met) == sum(isinstance(step, Measure) for step in run.plan.steps.values()) > 0
    assert not any(met)


def test_of_a_pack_what_a_pruning_waits_for_is_kept_first(tmp_path: Path, scene: Scene) -> None:
    """Retrainings of cycle 1 and the one that cycle 2 starts from are one pack: its pruning begins meanwhile."""
    put: list[str] = []
    pruned = threading.Event()
    run = run_of(
        tmp_path, variants=["plain_rewind", "ap_lite"], seeds=1, cycles=2, report_cycles=[1, 2], chain="reinit"
    )
    trunk = [key for key in run.plan.steps if key in run.plan.pruned]

    def wait_for_the_pruning(key: str) -> None:
        put.append(key)
        if len(put) == 3:  # the dense one, the one of the trunk, and now the first retraining
            assert pruned.wait(SECONDS)

    class Watching(Observer):
        def finished(self, step: Step, seconds: float) -> None:
            if isinstance(step, Prune) and step.cycle == 2:
                pruned.set()

    scene.before_put = wait_for_the_pruning
    run.go(Watching(), pack=8)
    assert put[:2] == trunk == [key for key in put if key in run.plan.pruned]
    assert len(put) == len(run.plan.trainings)
