"""Files and folders at the edge of what happens: what is gone, locked or odd."""

import errno
import os
from pathlib import Path

import pytest

from activeprune.experiment.store.files import age_of, alone, in_use
from activeprune.files import make, sync


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
