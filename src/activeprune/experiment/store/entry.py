"""What an entry of a store is: its key, its parts, its manifest, and what can be wrong with it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import InputError

FORMAT = 1
KEY_DIGITS = 32
MANIFEST = "manifest.json"
PROVENANCE = "provenance.json"
LONGEST_PART = 64  # characters: key and part fit into the 100 of a tar's header
_KEY = re.compile(f"[0-9a-f]{{{KEY_DIGITS}}}")
_PART = re.compile(r"[a-z0-9_]+\.[a-z]+")


class Missing(KeyError):
    """An entry, or a part of one, that the store does not have."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(what)
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError's own puts quotes around it


@dataclass(frozen=True)
class Problem:
    """What is wrong with an entry, and where it has been put."""

    key: str
    what: str
    file: Path  # where that was seen
    moved: Path | None = None  # the folder that the entry is in now; None: where it was

    def __str__(self) -> str:
        aside = "" if self.moved is None else f"; set aside in {self.moved}"
        return f"entry {self.key} is damaged: {self.what} ({self.file}){aside}"


class Damaged(Exception):
    """An entry that is not as it was written."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.key, self.problem = problem.key, problem


@dataclass(frozen=True)
class Entry:
    """A complete entry: its parts by name, with their sizes in bytes."""

    key: str
    parts: dict[str, int]

    @property
    def size(self) -> int:
        """Bytes of all its parts."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Seal:
    """What a manifest says of a part."""

    size: int  # bytes
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Seal:
        """The seal of some bytes.

        >>> Seal.of(b"abc").sha256[:8]
        'ba7816bf'
        """
        return cls(len(data), hashlib.sha256(data).hexdigest())

    def broken(self, data: bytes) -> str | None:
        """How bytes differ from what was written, None if they do not.

        >>> Seal.of(b"abc").broken(b"ab")
        'has 2 bytes instead of 3'
        """
        if len(data) != self.size:
            return f"has {len(data)} bytes instead of {self.size}"
        return None if Seal.of(data) == self else "has another SHA-256 than when it was written"

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"bytes": self.size, "sha256": self.sha256}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Seal:
        """The inverse of `as_dict`."""
        return cls(values["bytes"], values["sha256"])


def checked_key(key: str) -> str:
    """A key that can be the name of a folder.

    >>> checked_key("../../etc")
    Traceback (most recent call last):
    activeprune.core.errors.InputError: key '../../etc': 32 digits of 0-9 and a-f are needed
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InputError(f"key {key!r}: {KEY_DIGITS} digits of 0-9 and a-f are needed")
    return key


def checked_part(name: str) -> str:
    """A part's name that can be the name of a file."""
    if not isinstance(name, str) or not _PART.fullmatch(name) or len(name) > LONGEST_PART:
        most = f"at most {LONGEST_PART} characters"
        raise InputError(f"part {name!r}: a name like 'record.json' is needed, of a-z, 0-9 and _, {most}")
    if name in (MANIFEST, PROVENANCE):
        raise InputError(f"part {name!r}: that name belongs to the store; another one is needed")
    return name


def unfit(key: str, part: str, what: str) -> InputError:
    """The error for a part whose checksum is right, and whose content is not: anybody can make a pack."""
    aside = f"take the folder objects/{key[:2]}/{key} out of the store, and run again"
    return InputError(f"entry {key}: {part} {what}; {aside}")


def canonical(value: Any, allow_nan: bool = True) -> bytes:
    """JSON that is the same bytes whenever it is the same value.

    >>> canonical({"b": 1, "a": 2})
    b'{"a": 2, "b": 1}\\n'
    """
    return (json.dumps(value, sort_keys=True, allow_nan=allow_nan) + "\n").encode()


def written(key: str, seals: Mapping[str, Seal]) -> bytes:
    """The manifest of an entry."""
    return canonical({"format": FORMAT, "key": key, "parts": {name: seal.as_dict() for name, seal in seals.items()}})


def read(key: str, manifest: bytes) -> dict[str, Seal]:
    """The parts of an entry as its manifest has them; a ValueError if it is not one that `written` wrote."""
    try:
        parts = json.loads(manifest)["parts"]
        seals = {checked_part(name): Seal.from_dict(seal) for name, seal in sorted(parts.items())}
        if written(key, seals) == manifest:
            return seals
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise ValueError("is not a manifest as it was written")
