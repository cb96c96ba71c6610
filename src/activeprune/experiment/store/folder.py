"""Where results of pure steps are kept: bytes under a key, complete or not there, never changed.

In a folder:

    objects/ab/abcdef.../record.json      the parts of an entry, whatever they are
    objects/ab/abcdef.../provenance.json  how it came about: times, host; in no checksum
    objects/ab/abcdef.../manifest.json    size and SHA-256 of each part; written last: what has none is no entry
    damaged/abcdef...-1/                  an entry that was not as it had been written
    checkpoints/, leases/, runs/          what is under way, by whom, and which runs the store serves: no entries
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from ...files import discard, is_temporary, make, sync, temporary, write
from .entry import (
    MANIFEST,
    PROVENANCE,
    Damaged,
    Entry,
    Missing,
    Problem,
    Seal,
    canonical,
    checked_key,
    checked_part,
    read,
    written,
)
from .files import age_of, alone, explained, names_in, removed, size_of

CHECKPOINT_KIND = ".safetensors"
HOUR = 3600.0  # seconds; a put that has been quiet for so long is no longer under way
Problems = list[Problem]  # inside the classes below `list` is a method

_log = logging.getLogger(__name__)


class Store(Protocol):
    """What a folder, S3 or GCS can all be."""

    def has(self, key: str, *parts: str) -> bool:
        """Whether there is a complete entry that holds all these parts."""

    def has_something(self, key: str) -> bool:
        """Whether anything is under a key, complete or not."""

    def get(self, key: str, part: str) -> bytes:
        """A part, exactly as it was put; `Missing` if it is not there, `Damaged` if it is not what it was."""

    def put(self, key: str, parts: Mapping[str, bytes], provenance: Mapping[str, Any]) -> None:
        """Keeps parts under a key, all of them or none. Of two contents for one key the first is kept."""

    def provenance(self, key: str) -> dict[str, Any]:
        """What was told of how an entry came about."""

    def list(self) -> Iterator[Entry]:
        """All complete entries, by key."""


class FolderStore(Store):
    """A store in a folder, which is created at the first put.

    Processes may share it: each put and drop has its entry to itself, and reading needs no lock.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self.objects, self.damaged = self.root / "objects", self.root / "damaged"
        self.checkpoints, self.runs = self.root / "checkpoints", self.root / "runs"

    @property
    def is_there(self) -> bool:
        """Whether the folder is a store already."""
        return self.objects.is_dir()

    def checkpoint(self, key: str) -> Path:
        """Where a training that is under way leaves its checkpoint."""
        return self.checkpoints / f"{key}{CHECKPOINT_KIND}"

    def checkpoint_keys(self) -> Iterator[str]:
        """The trainings that have left one there."""
        for name in names_in(self.checkpoints):
            key, _, kind = name.partition(".")
            if key and f".{kind}" == CHECKPOINT_KIND:
                yield key

    def has(self, key: str, *parts: str) -> bool:
        """Whether there is a complete entry that holds all these parts, by name and size; `get` looks at the bytes."""
        folder = self._folder(key)
        names = [checked_part(name) for name in parts]
        with self._explained():
            try:
                seals = self._seals(key)
            except (Missing, Damaged):
                return False
            return all(name in seals and size_of(folder / name) == seals[name].size for name in names)

    def has_something(self, key: str) -> bool:
        """Whether anything is under a key, complete or not."""
        return self._folder(key).exists()

    def get(self, key: str, part: str) -> bytes:
        """A part, exactly as it was put. A damaged entry is set aside, and is then missing."""
        self._folder(key)
        checked_part(part)
        with self._explained():
            try:
                return self._part(key, part)
            except Damaged as damaged:
                if problem := self._settled(damaged.problem):
                    raise Damaged(problem) from None
            return self._part(key, part)  # somebody was changing it just then

    def put(self, key: str, parts: Mapping[str, bytes], provenance: Mapping[str, Any]) -> None:
        """Keeps parts under a key, all of them or none; they are on the disk when this returns.

        To an entry that exists it adds the parts that are missing. If it has one of them with another content, nothing
        changes: two processes may finish the same step, and the first one's result is what others have built on.
        """
        folder = self._folder(key)
        seals = {checked_part(name): Seal.of(data) for name, data in parts.items()}
        origin = canonical(dict(provenance))
        with self._explained(), alone(folder.parent):
            present = self._present(key)
            held = present or {}
            if any(held[name] != seals[name] for name in held.keys() & seals.keys()):
                return
            new = {name: parts[name] for name in sorted(seals.keys() - held.keys())}
            if present is None:
                new[PROVENANCE] = origin
            if new:
                _commit(folder, new, written(key, {**held, **seals}))

    def provenance(self, key: str) -> dict[str, Any]:
        """What was told of how an entry came about; nothing if that cannot be read, for no result depends on it."""
        with self._explained():
            self._seals(key)
            try:
                stored = json.loads((self._folder(key) / PROVENANCE).read_bytes())
            except (FileNotFoundError, ValueError, RecursionError):
                return {}
        return stored if isinstance(stored, dict) else {}

    def list(self) -> Iterator[Entry]:
        """All complete entries, by key."""
        with self._explained():
            for key in self._keys():
                with suppress(Missing, Damaged):
                    yield Entry(key, {name: seal.size for name, seal in self._seals(key).items()})

    def drop(self, key: str, part: str) -> int:
        """Removes one part of an entry, and returns how many bytes that freed: 0 if it was not there."""
        folder = self._folder(key)
        checked_part(part)
        with self._explained():
            if not folder.is_dir():
                return 0
            with alone(folder.parent):
                seals = self._present(key) or {}
                if part not in seals:
                    return 0
                freed = seals.pop(part).size
                _commit(folder, {}, written(key, seals))  # first: no manifest ever names a file that is not there
                os.unlink(folder / part)
                return freed

    def verify(self) -> Problems:
        """Reads every byte of every entry, and sets aside what is damaged.

        So it does with data without a manifest that are an hour old, which a process left that was killed.
        """
        with self._explained():
            problems = (problem for key in [*self._keys()] if (problem := self._problem(key)))
            return [still for problem in problems if (still := self._settled(problem))]

    def sweep(self) -> int:
        """Removes what killed processes left over and nobody reads, and returns how many bytes that freed.

        These are temporary files and parts that no manifest names, both an hour old.
        """
        freed = 0
        with self._explained():
            for path in self._files():
                if is_temporary(path.name) and age_of(path) >= HOUR:
                    freed += removed(path)
            for key in [*self._keys()]:
                folder = self._folder(key)
                if self._unnamed(key) or not names_in(folder):
                    with alone(folder.parent):
                        freed += sum(removed(path) for path in self._unnamed(key))
                        with suppress(OSError):  # it is an entry
                            os.rmdir(folder)
        return freed

    def size(self) -> int:
        """Bytes of all files in the folder, with those that were set aside."""
        with self._explained():
            return sum(size_of(path) or 0 for path in self._files(aside=True))

    def _folder(self, key: str) -> Path:
        return self.objects / checked_key(key)[:2] / key

    def _explained(self) -> AbstractContextManager[None]:
        return explained("store", self.root)

    def _keys(self) -> Iterator[str]:
        for shard in names_in(self.objects):
            if len(shard) == 2:
                yield from (name for name in names_in(self.objects / shard) if _is_key(name, shard))

    def _files(self, aside: bool = False) -> Iterator[Path]:
        for folder, folders, names in os.walk(self.root):
            if not aside and Path(folder) == self.damaged:
                folders.clear()
                continue
            yield from (Path(folder) / name for name in names)

    def _seals(self, key: str) -> dict[str, Seal]:
        """What the manifest says."""
        file = self._folder(key) / MANIFEST
        try:
            return read(key, file.read_bytes())
        except FileNotFoundError:
            raise Missing(key, f"no entry {key} in the store {self.root} (there is no {file})") from None
        except (ValueError, IsADirectoryError) as error:
            what = str(error) if isinstance(error, ValueError) else "is a folder"
            raise Damaged(Problem(key, f"{MANIFEST} {what}", file)) from error

    def _part(self, key: str, part: str) -> bytes:
        seals = self._seals(key)
        file = self._folder(key) / part
        if part not in seals:
            has = ", ".join(seals) or "none"
            raise Missing(key, f"entry {key} has no part {part!r} in the store {self.root} (it has: {has})")
        try:
            data = file.read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            raise Damaged(Problem(key, f"{part} is gone", file)) from None
        if fault := seals[part].broken(data):
            raise Damaged(Problem(key, f"{part} {fault}", file))
        return data

    def _present(self, key: str) -> dict[str, Seal] | None:
        """What an entry holds, None without one. To be asked alone: one that is plainly damaged is set aside."""
        try:
            seals = self._seals(key)
            for name, seal in seals.items():
                if (size := size_of(file := self._folder(key) / name)) != seal.size:
                    what = "is gone" if size is None else f"has {size} bytes instead of {seal.size}"
                    raise Damaged(Problem(key, f"{name} {what}", file))
        except Missing:
            return None
        except Damaged as damaged:
            _log.warning("%s", self._set_aside(damaged.problem))
            return None
        return seals

    def _problem(self, key: str) -> Problem | None:
        try:
            for part in self._seals(key):
                self._part(key, part)
        except Damaged as damaged:
            return damaged.problem
        except Missing:  # or changed while it was looked at
            return self._orphan(key)
        return None

    def _orphan(self, key: str) -> Problem | None:
        folder = self._folder(key)
        names = names_in(folder)
        if MANIFEST in names or all(is_temporary(name) for name in names):
            return None
        if min(age_of(path) for path in (folder, *(folder / name for name in names))) < HOUR:
            return None
        return Problem(key, f"there is no {MANIFEST}, the put did not finish", folder)

    def _unnamed(self, key: str) -> tuple[Path, ...]:
        """Files of an entry that its manifest does not name."""
        folder = self._folder(key)
        try:
            named = {*self._seals(key), MANIFEST, PROVENANCE}
        except (Missing, Damaged):  # `verify` tells of these
            return ()
        paths = (folder / name for name in names_in(folder) if name not in named and not is_temporary(name))
        return tuple(path for path in paths if age_of(path) >= HOUR)

    def _settled(self, problem: Problem) -> Problem | None:
        """Looks at an entry again while nobody changes it, and sets it aside if there is still something wrong."""
        try:
            with alone(self._folder(problem.key).parent):
                still = self._problem(problem.key)
                return still and self._set_aside(still)
        except OSError as error:  # to read from a store that cannot be written is fine
            return replace(problem, what=f"{problem.what}, and it cannot be set aside: {error.strerror}")

    def _set_aside(self, problem: Problem) -> Problem:
        folder = self._folder(problem.key)
        make(self.damaged)
        moved = next(path for n in count(1) if not (path := self.damaged / f"{problem.key}-{n}").exists())
        os.rename(folder, moved)
        sync(self.damaged)
        sync(folder.parent)
        return replace(problem, moved=moved)


def _commit(folder: Path, files: Mapping[str, bytes], manifest: bytes) -> None:
    """Writes files, and the manifest that makes them an entry.

    Every byte is on the disk before the first file gets its name, so that a full disk leaves nothing behind, and every
    file has its name before the manifest has.
    """
    make(folder)
    contents = {**files, MANIFEST: manifest}
    staged = {name: temporary(folder / name) for name in contents}
    try:
        for name, data in contents.items():
            write(staged[name], data)
        for name in files:
            os.replace(staged[name], folder / name)
        sync(folder)
        os.replace(staged[MANIFEST], folder / MANIFEST)
        sync(folder)
    except BaseException:
        for path in staged.values():
            discard(path)
        with suppress(OSError):  # it is not empty
            os.rmdir(folder)
        raise


def _is_key(name: str, shard: str) -> bool:
    try:
        return checked_key(name)[:2] == shard
    except ValueError:
        return False
