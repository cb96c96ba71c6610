"""A disk that is full or read-only, and data that are gone or have changed: one line, and nothing is lost."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.cli import main
from activeprune.experiment.collecting import collect
from activeprune.experiment.plan.steps import Step
from activeprune.experiment.runs import Run
from activeprune.experiment.search import started
from activeprune.experiment.store import FolderStore, files, folder, leases
from activeprune.experiment.work.observer import Observer
from tests.experiment.makers import TINY, contents, of_images
from tests.experiment.store.makers import age


def test_data_that_are_not_there_leave_the_store_as_it_was(tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes={**TINY, "data": {"name": "cifar10", "path": tmp_path / "none"}})
    with pytest.raises(ap.InputError, match="no cifar10 in"):
        run.go()
    assert contents(tmp_path / ".store") == {}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ap.InputError, match="a file is where a folder is needed"):
        started("smoke", tmp_path / "file" / "run", changes=TINY).go()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("after", [0, 4, 11])
def test_a_disk_that_is_full_or_read_only_is_one_line_and_nothing_is_lost(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int,
    capsys: pytest.CaptureFixture,
) -> None:  # fmt: skip
    """Some files can still be written, then no more; once there is room again, the same command ends as it should."""
    command = ["run", "smoke", "--out", str(tmp_path / "run"), "--set", "variants=[plain,ap_lite]", "--set", "cycles=1",
               "--processes", "1", "--quiet"]  # fmt: skip
    calls = 0
    whole = files.write

    def refuse(path: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(number, os.strerror(number), str(path))
        whole(path, data)

    with monkeypatch.context() as patch:
        for module in (files, folder, leases):
            if hasattr(module, "write"):
                patch.setattr(module, "write", refuse)
        assert main(command) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert ("the disk is full" if number == errno.ENOSPC else os.strerror(number)) in told
    left = contents(tmp_path / ".store")
    age(tmp_path)
    assert FolderStore(tmp_path / ".store").verify() == []
    reference = contents(finished / ".store")
    assert {name: data for name, data in reference.items() if name in left} == left
    assert main(command) == 0
    assert contents(tmp_path / ".store") == reference


def test_a_really_full_disk(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A file system of its own that holds one state and a half."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", small], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        command = ["run", "smoke", "--out", str(small / "run"), "--processes", "1", "--quiet"]
        assert main(command) == 2
        assert "the disk is full" in capsys.readouterr().err
        age(small)
        assert FolderStore(small / ".store").verify() == []
        assert len(list(FolderStore(small / ".store").list())) >= 1
        assert subprocess.run(["mount", "-o", "remount,size=16m", small], check=True)
        assert main(command) == 0
    finally:
        subprocess.run(["umount", small], check=True)


def test_data_that_vanish_in_the_middle_are_one_line_and_what_was_done_stays(images: Path, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=of_images(images))

    class Removing(Observer):
        def finished(self, step: Step, seconds: float) -> None:
            shutil.rmtree(images / "train", ignore_errors=True)

    with pytest.raises(ap.InputError, match="train"):
        run.go(Removing())
    assert len(list(run.store.list())) >= 1
    age(run.store.root)
    assert run.store.verify() == []


def test_a_report_does_not_need_the_images_any_more(images: Path, tmp_path: Path) -> None:
    run = ap.run("smoke", out=tmp_path / "run", set=of_images(images))
    rows = run.rows()
    assert all(row["accuracy"] is not None for row in rows)
    shutil.move(images, tmp_path / "elsewhere")
    assert ap.results(tmp_path / "run") == rows
    collect(run.store)
    moved = of_images(tmp_path / "elsewhere")
    assert not started("smoke", tmp_path / "again", changes=moved).plan.todo(run.store).missing
    (tmp_path / "elsewhere" / "train" / "cat" / "0.png").unlink()
    assert started("smoke", tmp_path / "other", changes=moved).plan.todo(run.store).missing


def test_a_folder_of_images_that_has_changed_is_refused(images: Path, tmp_path: Path) -> None:
    run = started("smoke", tmp_path / "run", changes=of_images(images))
    run.write_study()
    (images / "train" / "cat" / "0.png").unlink()
    with pytest.raises(ap.InputError, match="is not what it was: names or sizes of its files have changed"):
        Run.opened(tmp_path / "run").go()
