"""An entry is complete or not there, and never anything but what was put."""

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import activeprune
from activeprune.core.errors import InputError
from activeprune.experiment.store import Damaged, Entry, FolderStore, Missing

KEY, OTHER = "ab" * 16, "cd" * 16
PARTS = {"record.json": b'{"accuracy": 0.5}\n', "state.safetensors": bytes(range(256)) * 9}
HOW = {"host": "here", "seconds": 3.5}
WRITING = ("open", "write", "fsync", "mkdir", "replace")  # what a full disk can refuse

# Loads the store without torch: a process then starts in a moment, and may fork.
LIGHT = f"""
import sys, types
for name in ("", ".core", ".experiment"):
    package = types.ModuleType("activeprune" + name)
    package.__path__ = [{os.path.dirname(activeprune.__file__)!r} + name.replace(".", "/")]
    sys.modules["activeprune" + name] = package
from activeprune.experiment.store import *
"""


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def full(store: FolderStore) -> FolderStore:
    store.put(KEY, PARTS, HOW)
    return store


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


# What is damaged


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


HARMS = [cut, flip, empty, Path.unlink, become_a_folder]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", [*PARTS, "manifest.json"])
def test_a_damaged_entry_is_set_aside_and_can_be_put_again(
    full: FolderStore, name: str, harm: Callable[[Path], None]
) -> None:
    full.put(OTHER, PARTS, {})
    harm(folder(full) / name)
    if name == "manifest.json" and harm is Path.unlink:  # without one it is no entry
        assert not intact(full)
        full.put(KEY, PARTS, HOW)
        assert intact(full)
        return
    left = files(folder(full))
    part = name if name in PARTS else "record.json"
    with pytest.raises(Damaged) as told:
        full.get(KEY, part)
    moved = full.root / "damaged" / f"{KEY}-1"
    assert str(told.value).count("\n") == 0
    for said in (KEY, name, str(folder(full) / name), f"set aside in {moved}"):
        assert said in str(told.value)
    assert files(moved) == left
    assert not folder(full).exists()
    assert not intact(full)
    full.put(KEY, PARTS, HOW)
    assert intact(full)
    assert intact(full, OTHER)


def test_a_second_damage_is_set_aside_beside_the_first(full: FolderStore) -> None:
    for n in (1, 2, 3):
        full.put(KEY, PARTS, HOW)
        flip(folder(full) / "record.json")
        with pytest.raises(Damaged, match=f"{KEY}-{n}$"):
            full.get(KEY, "record.json")


@given(data=st.data())
def test_a_flipped_byte_anywhere_is_found(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = FolderStore(root)
        store.put(KEY, PARTS, HOW)
        store.put(OTHER, PARTS, HOW)
        path = folder(store) / data.draw(st.sampled_from([*PARTS, "manifest.json"]))
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        (problem,) = store.verify()
        assert problem.key == KEY
        assert problem.moved == Path(root) / "damaged" / f"{KEY}-1"
        assert store.verify() == []
        assert not intact(store)
        assert intact(store, OTHER)


def test_what_is_wrong_is_told_with_the_file_and_where_it_is_now(full: FolderStore) -> None:
    file = folder(full) / "record.json"
    cut(file)
    (problem,) = full.verify()
    assert str(problem) == (
        f"entry {KEY} is damaged: record.json has 17 bytes instead of 18 ({file}); "
        f"set aside in {full.root / 'damaged' / f'{KEY}-1'}"
    )


def test_a_damaged_provenance_harms_nobody(full: FolderStore) -> None:
    for content in (b"{", b"\xff", b"[]"):
        (folder(full) / "provenance.json").write_bytes(content)
        assert full.provenance(KEY) == {}
    (folder(full) / "provenance.json").unlink()
    assert full.provenance(KEY) == {}
    assert intact(full)
    assert full.verify() == []


@pytest.mark.parametrize("harm", [cut, Path.unlink])
def test_what_is_plainly_damaged_does_not_count_and_a_put_replaces_it(
    full: FolderStore, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    harm(folder(full) / "state.safetensors")
    assert not full.has(KEY, "state.safetensors")
    with caplog.at_level(logging.WARNING):
        full.put(KEY, PARTS, HOW)
    assert "set aside" in caplog.text
    assert intact(full)
    assert (full.root / "damaged" / f"{KEY}-1" / "record.json").exists()


def test_damage_in_a_store_that_cannot_be_written_is_told_all_the_same(
    full: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(folder(full) / "record.json")
    refuse(monkeypatch, errno.EROFS)
    with pytest.raises(Damaged, match="cannot be set aside: Read-only file system"):
        full.get(KEY, "record.json")
    assert full.get(KEY, "state.safetensors") == PARTS["state.safetensors"]
    (problem,) = full.verify()
    assert problem.moved is None


# What is left over


def test_data_without_a_manifest_are_no_entry_and_are_set_aside_when_they_are_old(full: FolderStore) -> None:
    (folder(full) / "manifest.json").unlink()
    assert not intact(full)
    assert full.verify() == []  # somebody may be at it
    age(folder(full))
    (problem,) = full.verify()
    assert "no manifest.json" in problem.what
    assert problem.moved is not None
    assert {*files(problem.moved)} == {*PARTS, "provenance.json"}
    assert full.verify() == []


def test_sweep_takes_old_left_overs_and_nothing_else(full: FolderStore) -> None:
    whole = files(full.root)
    leases = full.root / "leases"
    leases.mkdir()
    left = [
        folder(full) / f".state.safetensors.{'0' * 32}.part",
        folder(full) / "masks.safetensors",  # of a put that was killed, or a drop
        folder(full, OTHER) / f".record.json.{'1' * 32}.part",
        leases / f".{KEY}.json.{'2' * 32}.part",
    ]
    folder(full, OTHER).mkdir(parents=True)
    for path in left:
        path.write_bytes(b"12345")
    assert [entry.key for entry in full.list()] == [KEY]
    assert not full.has(KEY, "masks.safetensors")
    assert full.verify() == []
    assert full.sweep() == 0
    age(full.root)
    assert full.sweep() == 20
    assert files(full.root) == whole
    assert not folder(full, OTHER).exists()


def test_sweep_leaves_alone_what_was_set_aside(full: FolderStore) -> None:
    (folder(full) / f".record.json.{'0' * 32}.part").write_bytes(b"")
    flip(folder(full) / "record.json")
    full.verify()
    age(full.root)
    before = files(full.root)
    assert full.sweep(older_than=0) == 0
    assert files(full.root) == before


# What the file system refuses


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


# Several processes, and what kills them


def run(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LIGHT + script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


KILLED = """
import os
root, first = sys.argv[1], sys.argv[2] == "grown"
key, parts = "ab" * 16, {"record.json": b"r" * 20, "state.safetensors": b"s" * 5000}
calls = 0

def deadly(name, last):
    real = getattr(os, name)
    def call(*args):
        global calls
        calls += 1
        if calls == last:
            if name == "write":  # half of it is on the disk
                real(args[0], args[1][: len(args[1]) // 2])
            os._exit(9)
        return real(*args)
    setattr(os, name, call)

def put_and_die(store, last):
    for name in ("open", "write", "fsync", "close", "mkdir", "replace", "unlink", "rename"):
        deadly(name, last)
    store.put(key, parts, {})
    for part in (*parts, *parts):
        store.drop(key, part)
        store.put(key, parts, {})
    os._exit(0)

for last in range(1, 1000):
    store = FolderStore(f"{root}/{last}")
    if first:
        store.put(key, {"record.json": parts["record.json"]}, {})
    child = os.fork()
    if child == 0:
        put_and_die(store, last)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
    for entry in store.list():
        assert entry.key == key and {*entry.parts} <= {*parts}, entry
        assert all(store.get(key, part) == parts[part] for part in entry.parts), last
    assert store.verify() == [], last
    store.put(key, parts, {})
    assert all(store.get(key, part) == data for part, data in parts.items()), last
    store.sweep(older_than=0)
    files = [name for _, _, names in os.walk(store.root) for name in names if name != ".lock"]
    assert sorted(files) == sorted([*parts, "manifest.json", "provenance.json"]), (last, files)
print(last)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("before", ["new", "grown"])
def test_a_kill_at_any_moment_leaves_a_whole_entry_or_none(tmp_path: Path, before: str) -> None:
    done = run(KILLED, tmp_path, before)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert int(out) > 80  # moments


AT_ONCE = """
import hashlib, json
root, me = sys.argv[1:]
store = FolderStore(root)
for n in range(40):
    key = hashlib.md5(b"%d" % n).hexdigest()
    store.put(key, {"record.json": me.encode(), "state.safetensors": me.encode() * 999}, {"by": me})
    store.put(key, {"masks.safetensors": b"the same for all"}, {"by": me})
    assert store.get(key, "state.safetensors") == store.get(key, "record.json") * 999
    store.put(hashlib.md5(b"%d %s" % (n, me.encode())).hexdigest(), {"record.json": me.encode()}, {})
"""


def test_processes_at_once_end_well_and_no_entry_is_of_two_minds(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    running = [run(AT_ONCE, store.root, me) for me in ("a", "b", "c")]
    try:
        while any(process.poll() is None for process in running):
            for entry in store.list():
                assert all(store.get(entry.key, part) for part in entry.parts)
    finally:
        errors = [process.communicate(timeout=120)[1] for process in running]
    assert errors == [""] * 3
    entries = [*store.list()]
    assert sorted(len(entry.parts) for entry in entries) == [1] * 120 + [3] * 40
    for entry in entries:
        if len(entry.parts) == 3:
            who = store.get(entry.key, "record.json")
            assert store.get(entry.key, "state.safetensors") == who * 999
            assert store.provenance(entry.key) == {"by": who.decode()}
    assert store.verify() == []
    assert temporary_files(store) == []
