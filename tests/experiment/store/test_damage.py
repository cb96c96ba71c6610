"""What is damaged or left over is found and set aside, and the rest is as it was."""

import errno
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activeprune.experiment.store import Damaged, FolderStore
from tests.experiment.store.makers import (
    HOW,
    KEY,
    OTHER,
    PARTS,
    age,
    become_a_folder,
    cut,
    empty,
    files,
    flip,
    folder,
    intact,
    refuse,
)

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
    assert full.sweep() == 0
    assert files(full.root) == before
