"""Folders that processes share, and what the file system says in words for whoever owns it."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from ...core.errors import InputError
from ...files import NOT_OFFERED, make, whole_file, write

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}


def names_in(folder: Path) -> list[str]:
    """What is in a folder, sorted; nothing if there is none."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def size_of(file: Path) -> int | None:
    """Bytes of a file, None if there is none."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def age_of(path: Path) -> float:
    """Seconds since a change; 0 for what has just gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def removed(file: Path) -> int:
    """Removes a file that another process may be removing, too, and returns its size."""
    size = size_of(file)
    with suppress(FileNotFoundError):
        os.unlink(file)
    return size or 0


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lets one process or thread at a time into a folder that it creates where needed.

    The lock goes with the process that holds it, however that ends. On a file system without locks there is none.
    """
    make(folder)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor)
        yield
    finally:
        _unlock(descriptor)
        os.close(descriptor)


class Sharing:
    """A folder that processes share as long as they do the same there; whoever is alone may say what that is.

    As a context manager. `alone` is asked once, at the beginning; `share` lets others in.
    """

    def __init__(self, folder: Path) -> None:
        make(folder)
        self._descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        self.alone = _lock(self._descriptor, wait=False)
        if not self.alone:
            self.share()

    def share(self) -> None:
        """Lets others in, too."""
        _lock(self._descriptor, shared=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        _unlock(self._descriptor)
        os.close(self._descriptor)


def in_use(folder: Path) -> bool:
    """Whether a process shares a folder now; where that cannot be found out somebody may.

    The lock is taken for a moment, so this is to be asked seldom.
    """
    if sys.platform == "win32":
        return True
    try:
        descriptor = os.open(folder / ".lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        _unlock(descriptor)
        os.close(descriptor)
    return False


def read_json(path: Path, *keys: str) -> dict[str, Any]:
    """A file of this library's own that must hold some keys."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {**values, **{key: values[key] for key in keys}}
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def write_text(path: Path, text: str) -> None:
    """Under another name first, so that nobody sees half a file."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """The same for bytes."""
    with explained("file", path):
        make(path.parent)
        with whole_file(path) as part:
            write(part, data)


@contextmanager
def explained(what: str, path: Path) -> Iterator[None]:
    """Turns what the file system refuses into one line for the person who owns it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what} {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in _FULL:
        return f"the disk is full ({error.strerror}); free some space and start again, what was finished is kept"
    if error.errno in _FORBIDDEN:
        return f"{error.strerror}{where}; a folder that may be read and written is needed"
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"a file is where a folder is needed{where}"
    return f"{error.strerror or error}{where}"


def _lock(descriptor: int, shared: bool = False, wait: bool = True) -> bool:
    """Whether the lock could be had, which it can where there are none."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
    return True


def _unlock(descriptor: int) -> None:
    """Said, not left to the closing: a child process may have got a copy of the descriptor."""
    if sys.platform == "win32":
        return
    import fcntl

    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
