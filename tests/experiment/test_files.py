"""Files, folders and events at the edge of what happens: what is gone, what is odd, and whom to tell."""

import errno
import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.experiment.collecting import collect, registered
from activeprune.experiment.helper import Orphan, Telling
from activeprune.experiment.imports import import_all
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import parsed, read_study, written
from activeprune.experiment.plan.steps import Step
from activeprune.experiment.runs import RUN_FILE, Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore
from activeprune.experiment.store.files import age_of, alone, in_use
from activeprune.experiment.work.compute import Compute
from activeprune.experiment.work.helpers import Helpers
from activeprune.experiment.work.observer import Observer
from activeprune.files import make, sync

KEY = "ab" * 16


def test_what_is_gone_has_no_age(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", (0, 0))
    assert age_of(tmp_path / "old") > 50 * 365 * 24 * 3600  # since 1970
    assert age_of(tmp_path / "gone") == 0.0


def test_a_folder_whose_lock_cannot_be_opened_may_be_in_use(tmp_path: Path) -> None:
    assert not in_use(tmp_path)
    with alone(tmp_path):
        assert in_use(tmp_path)
    assert not in_use(tmp_path)
    (tmp_path / "odd" / ".lock").mkdir(parents=True)
    assert in_use(tmp_path / "odd")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a file system that cannot sync folders")
def test_a_file_system_that_cannot_sync_a_folder_is_no_error() -> None:
    descriptor = os.open("/proc/self", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Invalid argument") as told:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    assert told.value.errno == errno.EINVAL
    sync(Path("/proc/self"))


def test_a_file_in_the_place_of_a_folder_stays_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make(tmp_path / "file")


def test_folders_of_others_beside_the_entries_are_no_entries(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(KEY, {"record.json": b"1"}, {})
    (tmp_path / "objects" / "notes" / KEY).mkdir(parents=True)
    (tmp_path / "objects" / "cd" / KEY).mkdir(parents=True)  # a key that does not begin with its folder's name
    assert [entry.key for entry in store.list()] == [KEY]
    assert store.verify() == []


# -- a process that helps, and the one that it helps


def test_an_event_is_a_line_of_json() -> None:
    events = io.StringIO()
    telling = Telling(os.getppid(), events)
    telling.started(None)
    telling.trouble("a\nb")
    assert [json.loads(line) for line in events.getvalue().splitlines()] == [{"event": "trouble", "line": "a\nb"}]


def test_who_has_lost_the_process_that_asked_does_no_more_work() -> None:
    events = io.StringIO()
    lost = Telling(os.getppid() + 1, events)
    for tell in (lambda: lost.started(None), lambda: lost.trouble("line")):
        with pytest.raises(Orphan):
            tell()
    assert events.getvalue() == ""


def test_a_pipe_that_nobody_reads_is_the_end_of_the_work() -> None:
    read, write = os.pipe()
    os.close(read)
    events = os.fdopen(write, "w")
    with pytest.raises(Orphan):
        Telling(os.getppid(), events).trouble("line")
    with pytest.raises(BrokenPipeError):
        events.close()


class Noting(Observer):
    def __init__(self) -> None:
        self.seen: list = []

    def finished(self, step: Step, seconds: float) -> None:
        self.seen.append((step.key, seconds))

    def trouble(self, line: str) -> None:
        self.seen.append(line)


def test_of_what_a_helper_tells_only_steps_of_this_plan_are_passed_on(tmp_path: Path) -> None:
    plan, noting = Plan(read_study("smoke", {"seeds": 1})), Noting()
    helpers = Helpers(tmp_path, 0, plan, noting)
    known = plan.trainings[0].key
    for event in (
        {"event": "finished", "key": known, "seconds": 2.5},
        {"event": "finished", "key": KEY, "seconds": 1.0},
        {"event": "trouble", "line": "the disk is full"},
    ):
        helpers._relay(event)
    assert noting.seen == [(known, 2.5), "the disk is full"]


# -- what was written down


def test_a_study_that_was_written_is_read_again_and_nothing_else_is() -> None:
    study = read_study("smoke")
    assert parsed(written(study), "here") == study
    with pytest.raises(ap.InputError, match=r"^runs/x\.json is no YAML: "):
        parsed("{", "runs/x.json")
    with pytest.raises(ap.InputError, match=r"^runs/x\.json holds no study$"):
        parsed("- 1\n", "runs/x.json")


def test_a_store_that_is_no_path_is_one_line(tmp_path: Path) -> None:
    started("smoke", tmp_path / "run").write_study()
    assert Run.opened(tmp_path / "run").study == read_study("smoke")
    told = json.loads((tmp_path / "run" / RUN_FILE).read_text())
    (tmp_path / "run" / RUN_FILE).write_text(json.dumps({**told, "store": 3}))
    with pytest.raises(ap.InputError, match=r"run\.json cannot be read: its store is no path"):
        Run.opened(tmp_path / "run")


def test_only_folders_that_are_gone_are_forgotten_and_notes_are_no_runs(tmp_path: Path) -> None:
    stays, goes = (started("smoke", tmp_path / name, tmp_path / "store") for name in ("stays", "goes"))
    for run in (stays, goes):
        run.write_study()
    (tmp_path / "store" / "runs" / "notes.txt").write_text("mine")
    shutil.rmtree(tmp_path / "goes")
    assert len(registered(stays.store)) == 2
    assert collect(stays.store, forget=True) == 0
    assert [known.out.resolve() for known in registered(stays.store)] == [(tmp_path / "stays").resolve()]


def test_what_starts_a_chain_is_no_step_to_compute(tmp_path: Path) -> None:
    start = Plan(read_study("smoke")).trainings[0].start
    with pytest.raises(ap.InputError, match="a step of kind init is not computed by itself"):
        Compute(FolderStore(tmp_path / "store"), tmp_path)(start)


def test_the_device_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    assert started("smoke", tmp_path, changes={"device": "cpu"}).device == "cpu"


def test_modules_of_ones_own_are_found_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_module_of_a_test.py").write_text("here = __file__\n")
    (tmp_path / "own_module_that_leaves.py").write_text("raise SystemExit('no')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        import_all(["own_module_of_a_test"], str(tmp_path))
        assert sys.modules["own_module_of_a_test"].here == str(tmp_path / "own_module_of_a_test.py")
        assert sys.path.count(str(tmp_path)) == 1
        import_all(["own_module_of_a_test"], str(tmp_path))
        assert sys.path.count(str(tmp_path)) == 1
        with pytest.raises(ap.InputError, match="--import own_module_that_leaves: SystemExit: no"):
            import_all(["own_module_that_leaves"], str(tmp_path))
    finally:
        sys.modules.pop("own_module_of_a_test", None)
