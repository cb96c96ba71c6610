"""Files that are whole or not there, whenever a process is killed or the power goes."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

NOT_OFFERED = {errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # by this file system

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.part")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)  # the last one: Windows


def temporary(path: Path) -> Path:
    """A name in the same folder that nobody else uses, for a file that will become `path`."""
    return path.with_name(f".{path.name}.{uuid4().hex}.part")


def is_temporary(name: str) -> bool:
    """Whether `temporary` made a name.

    >>> is_temporary(temporary(Path("record.json")).name), is_temporary("record.json")
    (True, False)
    """
    return _TEMPORARY.fullmatch(name) is not None


def leftovers(path: Path) -> Iterator[Path]:
    """What killed processes left of a file that was to become `path`."""
    return path.parent.glob(f".{path.name}.*.part")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Another name to write a file under, which becomes `path` at the end of the block, its bytes on the disk.

    Nobody ever sees half a file, of two writers the last one wins, and after an error the former file is still there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "note") as part:
    ...         _ = part.write_text("all of it")
    ...     (Path(folder) / "note").read_text()
    'all of it'
    """
    part = temporary(path)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        discard(part)


def write(path: Path, data: bytes) -> None:
    """Writes a file that does not exist yet; its bytes are on the disk when this returns."""
    descriptor = os.open(path, _NEW, 0o666)
    try:
        rest = memoryview(data)
        while rest:  # one call takes 2 GiB at most
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    """Removes a file if that can be done; for cleaning up, where the first error is the one to tell."""
    with suppress(OSError):
        os.unlink(path)


def sync(folder: Path) -> None:
    """Has the names in a folder on the disk when it returns, where the file system offers that."""
    if sys.platform == "win32":  # which cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
    finally:
        os.close(descriptor)


def make(folder: Path) -> None:
    """Creates a folder and those above it, each of them on the disk when it returns."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make(folder.parent)
    try:
        os.mkdir(folder)
    except FileExistsError:  # another process was faster, or it is a file
        if not folder.is_dir():
            raise
    sync(folder.parent)
