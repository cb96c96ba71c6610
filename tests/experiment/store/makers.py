"""What tests of a store share: an entry, and what can befall it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activeprune.experiment.store import FolderStore, Missing

KEY, OTHER = "ab" * 16, "cd" * 16
PARTS = {"record.json": b'{"accuracy": 0.5}\n', "state.safetensors": bytes(range(256)) * 9}
HOW = {"host": "here", "seconds": 3.5}
WRITING = ("open", "write", "fsync", "mkdir", "replace")  # what a full disk can refuse


def folder(store: FolderStore, key: str = KEY) -> Path:
    return store.root / "objects" / key[:2] / key


def files(root: Path) -> dict[str, bytes]:
    """Everything below a folder but the locks, which are empty."""
    paths = (path for path in root.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def temporary_files(store: FolderStore) -> list[str]:
    return [name for name in files(store.root) if name.endswith(".part")]


def age(root: Path, seconds: float = 7200.0) -> None:
    for path in [root, *root.rglob("*")]:
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def intact(store: FolderStore, key: str = KEY) -> bool:
    """Whether an entry is all there; it must be, or else none of it may be."""
    entries = {entry.key: entry.parts for entry in store.list()}
    if key not in entries:
        assert not store.has(key)
        with pytest.raises(Missing):
            store.get(key, "record.json")
        return False
    assert entries[key] == {name: len(data) for name, data in PARTS.items()}
    assert {name: store.get(key, name) for name in PARTS} == PARTS
    return True


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def refuse(monkeypatch: pytest.MonkeyPatch, number: int, after: int = 0, once: bool = False) -> None:
    """From the call after `after` on, everything that writes fails, or that one call alone."""
    calls = 0

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == after + 1 or (calls > after and not once):
                raise OSError(number, os.strerror(number))
            return real(*args, **kwargs)

        return call

    for name in WRITING:
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
