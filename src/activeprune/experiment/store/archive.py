"""Entries of a store in one file, to go on elsewhere: an uncompressed tar, the same bytes for the same entries.

Its first member is `index.json` with size and SHA-256 of all others, which are `KEY/PART` in sorted order.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from ...core.errors import InputError
from ...files import sync, whole_file
from .entry import PROVENANCE, Seal, canonical, checked_key, checked_part
from .files import explained
from .folder import Store

FORMAT = 1
INDEX = "index.json"

Index = dict[str, dict[str, Seal]]  # by key, by file


@dataclass(frozen=True)
class Unpacked:
    """How many entries of a pack were new, or had new parts, and how many had nothing to add."""

    added: int
    present: int


def pack(store: Store, file: Path | str, entries: Iterable[tuple[str, Iterable[str]]]) -> int:
    """Writes parts of entries into a file, with their provenance, and returns how many entries those are.

    A part that the store does not have is a `Missing`, and no file is written.
    """
    path = Path(file)
    chosen: dict[str, set[str]] = {}
    for key, parts in entries:
        chosen.setdefault(checked_key(key), set()).update(checked_part(part) for part in parts)
    index: Index = {
        key: {name: Seal.of(_file(store, key, name)) for name in sorted({*chosen[key], PROVENANCE})}
        for key in sorted(chosen)
    }
    with explained("pack", path):
        with whole_file(path) as staged, tarfile.open(staged, "w:", format=tarfile.GNU_FORMAT) as tar:
            _add(tar, INDEX, _written(index))
            for key, name in _members(index):
                _add(tar, f"{key}/{name}", _file(store, key, name))  # read twice: it may not fit into memory
        sync(path.parent)
    return len(index)


def unpack(file: Path | str, store: Store) -> Unpacked:
    """Puts the entries of a pack into a store.

    All of the pack is checked first; one that is damaged adds nothing.
    """
    path = Path(file)
    with _refused(path):
        tar = tarfile.open(path, "r:")  # noqa: SIM115 closed below, where errors of the store are no errors of the file
    added = present = 0
    with tar:
        with _refused(path):
            index = _index(tar, path.stat().st_size)
            for key, name in _members(index):
                data = _checked(tar, key, name, index[key][name])
                if name == PROVENANCE and not isinstance(json.loads(data), dict):
                    raise ValueError(f"{key}/{name} is not a JSON object")
        for key, seals in index.items():
            parts = [name for name in seals if name != PROVENANCE]
            if store.has(key, *parts):
                present += 1
                continue
            with _refused(path):
                files = {name: _checked(tar, key, name, seal) for name, seal in seals.items()}
            store.put(key, {name: files[name] for name in parts}, json.loads(files[PROVENANCE]))
            if store.has(key, *parts):
                added += 1
            else:  # it holds another result for the same key, and keeps it
                present += 1
    return Unpacked(added, present)


def _file(store: Store, key: str, name: str) -> bytes:
    return canonical(store.provenance(key)) if name == PROVENANCE else store.get(key, name)


def _members(index: Index) -> Iterator[tuple[str, str]]:
    return ((key, name) for key, seals in index.items() for name in seals)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # time, owner and mode are the same for all
    member.size = len(data)
    tar.addfile(member, BytesIO(data))


def _written(index: Index) -> bytes:
    entries = {key: {name: seal.as_dict() for name, seal in seals.items()} for key, seals in index.items()}
    return canonical({"activeprune": "pack", "format": FORMAT, "entries": entries})


def _index(tar: tarfile.TarFile, length: int) -> Index:
    """The index, once the file is known to have exactly the members that it names, and none of them is cut off."""
    first = tar.next()
    if first is None or first.name != INDEX or not _plain(first):
        raise ValueError(f"it does not begin with {INDEX}")
    stream = tar.extractfile(first)
    data = stream.read() if stream else b""
    content = json.loads(data)
    if not isinstance(content, dict) or content.get("activeprune") != "pack" or content.get("format") != FORMAT:
        raise ValueError(f"{INDEX} is none of format {FORMAT}")
    index = {
        checked_key(key): {
            name if name == PROVENANCE else checked_part(name): Seal.from_dict(seal)
            for name, seal in sorted(seals.items())
        }
        for key, seals in sorted(content["entries"].items())
    }
    if _written(index) != data or not all(PROVENANCE in seals for seals in index.values()):
        raise ValueError(f"{INDEX} is not as it was written")
    names = [INDEX, *(f"{key}/{name}" for key, name in _members(index))]
    if [member.name for member in tar.getmembers()] != names or not all(map(_plain, tar.getmembers())):
        raise ValueError(f"it does not hold what {INDEX} names")
    expected = _length([len(data), *(index[key][name].size for key, name in _members(index))])
    if length != expected:
        raise ValueError(f"it has {length} bytes instead of {expected}")
    return index


def _plain(member: tarfile.TarInfo) -> bool:
    """A file that has its own bytes: no link, no device, nothing that unfolds to more than the pack holds."""
    return member.type == tarfile.REGTYPE and not member.issparse() and not member.pax_headers


def _length(sizes: list[int]) -> int:
    """Bytes of a tar: a block as header of each member, whole blocks of data, two at the end, in whole records."""
    blocks = sum(1 + -(-size // tarfile.BLOCKSIZE) for size in sizes) + 2
    return -(-blocks * tarfile.BLOCKSIZE // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


def _checked(tar: tarfile.TarFile, key: str, name: str, seal: Seal) -> bytes:
    stream = tar.extractfile(f"{key}/{name}")
    data = stream.read() if stream else b""
    if fault := seal.broken(data):
        raise ValueError(f"{key}/{name} {fault}")
    return data


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"pack {path} cannot be read: {error.strerror or error}") from error
    except (
        tarfile.TarError, ValueError, TypeError, KeyError, AttributeError, EOFError, MemoryError, RecursionError
    ) as error:  # fmt: skip
        wanted = "a file that `activeprune store pack` wrote is needed"
        raise InputError(f"pack {path} is damaged or something else: {error}; {wanted}") from error
