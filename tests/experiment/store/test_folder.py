"""An entry is complete or not there, and never anything but what was put."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activeprune.core.errors import InputError
from activeprune.experiment.store import Entry, FolderStore, Missing
from tests.experiment.store.makers import (
    HOW,
    KEY,
    OTHER,
    PARTS,
    files,
    folder,
    intact,
    refuse,
    temporary_files,
)

# What is put


def test_what_was_put_is_got(store: FolderStore) -> None:
    assert not store.has(KEY)
    store.put(KEY, PARTS, HOW)
    assert store.has(KEY)
    assert store.has(KEY, "state.safetensors", "record.json")
    assert not store.has(KEY, "record.json", "masks.safetensors")
    assert {name: store.get(KEY, name) for name in PARTS} == PARTS
    assert store.provenance(KEY) == HOW
    assert [*store.list()] == [Entry(KEY, {"record.json": 18, "state.safetensors": 2304})]
    assert next(store.list()).size == 2322
    assert store.verify() == []


def test_looking_creates_no_folder(store: FolderStore) -> None:
    assert not store.has(KEY, "record.json")
    assert ([*store.list()], store.verify(), store.size()) == ([], [], 0)
    assert (store.sweep(), store.drop(KEY, "record.json")) == (0, 0)
    with pytest.raises(Missing):
        store.get(KEY, "record.json")
    assert not store.root.exists()


def test_the_manifest_is_these_bytes_whatever_the_provenance(full: FolderStore, tmp_path: Path) -> None:
    other = FolderStore(tmp_path / "other")
    other.put(KEY, dict(reversed(PARTS.items())), {"host": "elsewhere"})
    manifest = (folder(full) / "manifest.json").read_bytes()
    assert manifest == (folder(other) / "manifest.json").read_bytes()
    parts = ", ".join(
        f'"{name}": {{"bytes": {len(data)}, "sha256": "{sha256(data).hexdigest()}"}}' for name, data in PARTS.items()
    )
    assert manifest.decode() == f'{{"format": 1, "key": "{KEY}", "parts": {{{parts}}}}}\n'
    assert json.loads((folder(full) / "provenance.json").read_bytes()) == HOW


def test_entries_are_listed_by_key(store: FolderStore) -> None:
    keys = [f"{n * 2654435761 % 2**128:032x}" for n in range(20)] + [f"ff{n:030x}" for n in range(3)]
    for key in keys:
        store.put(key, {"record.json": b""}, {})
    assert [entry.key for entry in store.list()] == sorted(keys)


@given(
    st.dictionaries(st.from_regex(r"[a-z0-9_]{1,9}\.[a-z]{1,5}", fullmatch=True), st.binary(max_size=99), max_size=4)
)
def test_any_parts_come_back(parts: dict[str, bytes]) -> None:
    parts = {name: data for name, data in parts.items() if name not in ("manifest.json", "provenance.json")}
    with tempfile.TemporaryDirectory() as root:
        FolderStore(root).put(KEY, parts, {})
        again = FolderStore(root)
        assert {name: again.get(KEY, name) for name in parts} == parts
        assert again.has(KEY, *parts)
        assert [*again.list()] == [Entry(KEY, {name: len(data) for name, data in parts.items()})]
        assert again.verify() == []


@pytest.mark.parametrize("key", ["", "..", "../" * 11, "AB" * 16, "ab" * 17, "ab" * 15 + "/.", "ab" * 16 + "\n", 5])
def test_no_key_leaves_the_folder(store: FolderStore, key: Any) -> None:
    for use in (store.has, store.provenance, lambda key: store.put(key, PARTS, {})):
        with pytest.raises(InputError, match="32 digits"):
            use(key)
    assert not store.root.exists()


@pytest.mark.parametrize(
    "part", ["", "record", ".json", "../a.json", "a/b.json", "A.json", "a.json\n", "x" * 64 + ".a", "manifest.json"]
)
def test_no_part_leaves_its_entry(store: FolderStore, part: str) -> None:
    for use in (
        lambda: store.has(KEY, part),
        lambda: store.get(KEY, part),
        lambda: store.drop(KEY, part),
        lambda: store.put(KEY, {part: b""}, {}),
    ):
        with pytest.raises(InputError, match="part "):
            use()
    assert not store.root.exists()


def test_provenance_that_is_no_json_is_refused_before_anything_is_written(store: FolderStore) -> None:
    with pytest.raises(TypeError):
        store.put(KEY, PARTS, {"path": Path()})
    assert not store.root.exists()


# What never changes


def test_the_same_put_again_changes_nothing(full: FolderStore) -> None:
    before = files(full.root)
    full.put(KEY, PARTS, {"host": "elsewhere"})
    assert files(full.root) == before


def test_a_missing_part_is_added(full: FolderStore) -> None:
    full.put(KEY, {"record.json": PARTS["record.json"], "masks.safetensors": b"masks"}, {"host": "elsewhere"})
    assert full.has(KEY, *PARTS, "masks.safetensors")
    assert full.get(KEY, "masks.safetensors") == b"masks"
    assert full.provenance(KEY) == HOW
    assert full.verify() == []


def test_of_two_results_the_first_is_kept(full: FolderStore) -> None:
    before = files(full.root)
    full.put(KEY, {"record.json": b"another", "masks.safetensors": b"that belong to it"}, {})
    assert files(full.root) == before


def test_bytes_on_the_disk_come_before_names_and_the_manifest_comes_last(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: dict[int, str] = {}
    flushed, named = [], []
    os_open, os_fsync, os_replace = os.open, os.fsync, os.replace

    def watched_open(path: Any, *args: Any) -> int:
        descriptor = os_open(path, *args)
        opened[descriptor] = str(path)
        return descriptor

    def watched_fsync(descriptor: int) -> None:
        os_fsync(descriptor)
        flushed.append(opened[descriptor])

    def watched_replace(old: Any, new: Any) -> None:
        assert str(old) in flushed
        if Path(new).name == "manifest.json":  # the names of the data are on the disk, too
            assert flushed[-1] == str(folder(store))
        os_replace(old, new)
        named.append(Path(new).name)

    monkeypatch.setattr(os, "open", watched_open)
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    store.put(KEY, PARTS, HOW)
    assert named == ["record.json", "state.safetensors", "provenance.json", "manifest.json"]
    assert flushed[-1] == str(folder(store))
    assert {str(store.root), str(store.root.parent), str(folder(store).parent)} <= {*flushed}


# What is removed


def test_a_dropped_part_is_gone_and_the_rest_is_as_it_was(full: FolderStore) -> None:
    assert full.drop(KEY, "state.safetensors") == 2304
    assert full.drop(KEY, "state.safetensors") == 0
    assert not full.has(KEY, "state.safetensors")
    assert full.get(KEY, "record.json") == PARTS["record.json"]
    with pytest.raises(Missing, match=rf"{KEY} has no part 'state.safetensors'.*it has: record.json"):
        full.get(KEY, "state.safetensors")
    assert full.verify() == []
    full.put(KEY, PARTS, {})
    assert intact(full)


def test_size_is_that_of_all_files(full: FolderStore) -> None:
    full.put(OTHER, PARTS, HOW)
    assert full.size() == sum(len(data) for data in files(full.root).values())


def test_a_part_dropped_while_it_is_read_is_missing_not_damaged(
    full: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_bytes = Path.read_bytes

    def dropped_before(path: Path) -> bytes:
        monkeypatch.undo()
        manifest = read_bytes(path)
        FolderStore(full.root).drop(KEY, "state.safetensors")
        return manifest

    monkeypatch.setattr(Path, "read_bytes", dropped_before)
    with pytest.raises(Missing):
        full.get(KEY, "state.safetensors")
    assert full.has(KEY, "record.json")


# What the file system refuses


@pytest.mark.parametrize("before", [{}, {"record.json": PARTS["record.json"]}], ids=["new", "grown"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "from_then_on"])
def test_a_disk_that_is_full_at_any_moment_leaves_the_store_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, bytes], once: bool
) -> None:
    for calls in range(100):
        store = FolderStore(tmp_path / f"store{calls}")
        store.put(OTHER, PARTS, HOW)
        if before:
            store.put(KEY, before, HOW)
        with monkeypatch.context() as patch:
            refuse(patch, errno.ENOSPC, calls, once)
            try:
                store.put(KEY, PARTS, HOW)
            except InputError as error:
                line = str(error)
            else:
                break
        assert line.startswith(f"store {store.root}: the disk is full")
        assert "\n" not in line
        assert temporary_files(store) == []
        assert intact(store, OTHER)
        if before and not store.has(KEY, *PARTS):
            assert store.get(KEY, "record.json") == before["record.json"]
        elif not before:
            intact(store)
        store.put(KEY, PARTS, HOW)
        assert intact(store)
        assert store.verify() == []
    assert calls > 10  # ways to fail, until there was none


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_named(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse(monkeypatch, number)
    with pytest.raises(InputError, match=f"^store {store.root}: {os.strerror(number)}; a folder that may be"):
        store.put(KEY, PARTS, HOW)


def test_a_root_that_is_a_file_is_named(store: FolderStore) -> None:
    store.root.write_bytes(b"mine")
    uses: list[Callable[[], object]] = [
        lambda: store.put(KEY, PARTS, HOW),
        lambda: store.has(KEY),
        lambda: [*store.list()],
    ]
    for use in uses:
        with pytest.raises(InputError, match=f"^store {store.root}: a file is where a folder is needed"):
            use()
    assert store.root.read_bytes() == b"mine"


def test_a_root_that_vanished_is_an_empty_store(full: FolderStore) -> None:
    shutil.rmtree(full.root)
    assert not intact(full)
    full.put(KEY, PARTS, HOW)
    assert intact(full)


def test_folders_of_others_beside_the_entries_are_no_entries(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(KEY, {"record.json": b"1"}, {})
    (tmp_path / "objects" / "notes" / KEY).mkdir(parents=True)
    (tmp_path / "objects" / "cd" / KEY).mkdir(parents=True)  # a key that does not begin with its folder's name
    assert [entry.key for entry in store.list()] == [KEY]
    assert store.verify() == []
