"""A pack carries entries from one store to another, all of them as they were or none."""

import errno
import io
import json
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activeprune.core.errors import InputError
from activeprune.experiment.store import Entry, FolderStore, Missing
from activeprune.experiment.store.archive import Unpacked, pack, unpack
from activeprune.experiment.store.entry import Seal

A, B, C = "aa" * 16, "bb" * 16, "cc" * 16
STATE = bytes(range(256)) * 5
ALL = [(A, ["record.json", "masks.safetensors"]), (B, ["record.json"])]


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return filled(tmp_path / "store")


@pytest.fixture
def other(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "other")


def filled(root: Path) -> FolderStore:
    store = FolderStore(root)
    store.put(A, {"record.json": b"a", "masks.safetensors": b"m" * 600, "state.safetensors": STATE}, {"host": "here"})
    store.put(B, {"record.json": b"", "state.safetensors": STATE}, {"seconds": 2.5})
    store.put(C, {"record.json": b"c"}, {})
    return store


def contents(store: FolderStore) -> dict[str, dict[str, bytes]]:
    return {entry.key: {part: store.get(entry.key, part) for part in entry.parts} for entry in store.list()}


def tar_of(path: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def members_of(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]


def test_what_was_packed_arrives_and_nothing_else(store: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    assert pack(store, tmp_path / "p.tar", ALL) == 2
    assert unpack(tmp_path / "p.tar", other) == Unpacked(added=2, present=0)
    assert contents(other) == {A: {"record.json": b"a", "masks.safetensors": b"m" * 600}, B: {"record.json": b""}}
    assert other.provenance(A) == {"host": "here"}
    assert other.provenance(B) == {"seconds": 2.5}
    assert other.verify() == []


def test_unpacking_again_adds_nothing(store: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    pack(store, tmp_path / "p.tar", ALL)
    unpack(tmp_path / "p.tar", other)
    assert unpack(tmp_path / "p.tar", other) == Unpacked(added=0, present=2)
    assert unpack(tmp_path / "p.tar", store) == Unpacked(added=0, present=2)


def test_parts_that_an_entry_lacks_are_added(store: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    other.put(A, {"record.json": b"a"}, {"host": "there"})
    pack(store, tmp_path / "p.tar", [(A, ["record.json", "state.safetensors"])])
    assert unpack(tmp_path / "p.tar", other) == Unpacked(added=1, present=0)
    assert other.get(A, "state.safetensors") == STATE
    assert other.provenance(A) == {"host": "there"}


def test_a_result_that_is_there_stays(store: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    other.put(A, {"record.json": b"another"}, {})
    pack(store, tmp_path / "p.tar", ALL)
    assert unpack(tmp_path / "p.tar", other) == Unpacked(added=1, present=1)
    assert contents(other)[A] == {"record.json": b"another"}


def test_the_same_entries_are_the_same_bytes(store: FolderStore, tmp_path: Path) -> None:
    pack(store, tmp_path / "p.tar", ALL)
    split = [(B, ["record.json"]), (A, ["masks.safetensors"]), (A, iter(["record.json"]))]
    pack(filled(tmp_path / "elsewhere"), tmp_path / "q.tar", split)
    assert (tmp_path / "p.tar").read_bytes() == (tmp_path / "q.tar").read_bytes()


def test_it_is_a_plain_tar_with_the_index_first(store: FolderStore, tmp_path: Path) -> None:
    pack(store, tmp_path / "p.tar", ALL)
    with tarfile.open(tmp_path / "p.tar", "r:") as tar:
        members = tar.getmembers()
    of_a = [f"{A}/{name}" for name in ("masks.safetensors", "provenance.json", "record.json")]
    assert [member.name for member in members] == [
        "index.json",
        *of_a,
        *[f"{B}/{name}" for name in ("provenance.json", "record.json")],
    ]
    assert {(member.mtime, member.uid, member.gid, member.uname, member.mode) for member in members} == {
        (0, 0, 0, "", 0o644)
    }


def test_an_empty_pack_is_a_pack(store: FolderStore, other: FolderStore, tmp_path: Path) -> None:
    assert pack(store, tmp_path / "p.tar", []) == 0
    assert unpack(tmp_path / "p.tar", other) == Unpacked(0, 0)


def test_what_is_not_there_cannot_be_packed(store: FolderStore, tmp_path: Path) -> None:
    for key, part in ((C, "state.safetensors"), ("dd" * 16, "record.json")):
        with pytest.raises(Missing):
            pack(store, tmp_path / "p.tar", [*ALL, (key, [part])])
    with pytest.raises(InputError, match="part"):
        pack(store, tmp_path / "p.tar", [(A, ["../record.json"])])
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_full_disk_leaves_the_former_pack(
    store: FolderStore, other: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(store, tmp_path / "p.tar", ALL)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(InputError, match=f"^pack {tmp_path / 'p.tar'}: the disk is full"):
                pack(store, tmp_path / "p.tar", [(C, ["record.json"])])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["p.tar", "store"]
    assert unpack(tmp_path / "p.tar", other) == Unpacked(added=2, present=0)
    with pytest.raises(InputError, match="No such file or directory"):
        pack(store, tmp_path / "nowhere" / "p.tar", ALL)


def refused(path: Path) -> None:
    """A pack that adds nothing, and an error in one line that names it."""
    with tempfile.TemporaryDirectory() as root:
        into = FolderStore(Path(root) / "store")
        with pytest.raises(InputError) as told:
            unpack(path, into)
        assert str(told.value).startswith(f"pack {path} ")
        assert "\n" not in str(told.value)
        assert not into.root.exists()


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packed")
    pack(filled(root / "store"), root / "p.tar", ALL)
    return root / "p.tar"


@settings(max_examples=60)
@given(data=st.data())
def test_a_pack_that_is_cut_off_anywhere_adds_nothing(packed: Path, data: st.DataObject) -> None:
    whole = packed.read_bytes()
    short = packed.with_name("short.tar")
    short.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    refused(short)
    short.write_bytes(whole + b"\0")
    refused(short)


@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_byte_is_found_unless_it_says_nothing(packed: Path, data: st.DataObject) -> None:
    content = bytearray(packed.read_bytes())
    used = sum(512 + -(-len(member) // 512) * 512 for _, member in members_of(packed))
    content[data.draw(st.integers(0, used - 1))] ^= data.draw(st.integers(1, 255))
    flipped = packed.with_name("flipped.tar")
    flipped.write_bytes(content)
    try:
        is_padding = members_of(flipped) == members_of(packed)
    except tarfile.TarError:
        is_padding = False
    if not is_padding:
        refused(flipped)
        return
    with tempfile.TemporaryDirectory() as root:  # filling between members
        clean, same = FolderStore(f"{root}/clean"), FolderStore(f"{root}/same")
        unpack(packed, clean)
        unpack(flipped, same)
        assert contents(same) == contents(clean)


def test_a_foreign_file_adds_nothing(packed: Path, tmp_path: Path) -> None:
    whole = members_of(packed)
    index, rest = whole[0], whole[1:]
    for name in ("../../evil.json", "/etc/evil.json", f"{A}/../evil.json"):
        refused(tar_of(tmp_path / "extra.tar", *whole, (name, b"")))
        refused(tar_of(tmp_path / "renamed.tar", index, (name, rest[0][1]), *rest[1:]))
        named = index[1].replace(b"masks.safetensors", name.encode())
        refused(tar_of(tmp_path / "named.tar", (index[0], named), (f"{A}/{name}", rest[0][1]), *rest[1:]))
    refused(tar_of(tmp_path / "twice.tar", *whole, rest[0]))
    refused(tar_of(tmp_path / "order.tar", *rest, index))
    refused(tar_of(tmp_path / "later.tar", (index[0], index[1].replace(b'"format": 1', b'"format": 2')), *rest))
    for data in (b"", b"[]", b"{}", b"\xff", b'{"activeprune": "pack", "format": 1}', b'{"entries": []}'):
        refused(tar_of(tmp_path / "index.tar", ("index.json", data)))
    refused(tar_of(tmp_path / "empty.tar"))
    (tmp_path / "text").write_text("no tar at all\n" * 99)
    refused(tmp_path / "text")
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        tar.add(packed, "p.tar")
    refused(tmp_path / "p.tar.gz")
    refused(tmp_path / "nowhere.tar")
    refused(tmp_path)


def test_an_index_in_other_words_and_a_provenance_that_is_none_add_nothing(packed: Path, tmp_path: Path) -> None:
    """All sizes and sums are right, but `pack` would not have written it."""
    (_, index), *rest = members_of(packed)
    spaced = json.dumps(json.loads(index), sort_keys=True, indent=1).encode()
    refused(tar_of(tmp_path / "spaced.tar", ("index.json", spaced), *rest))
    name, provenance = next(member for member in rest if member[0].endswith("provenance.json"))
    seals = [Seal.of(data) for data in (provenance, b"[]\n")]
    other = index
    for old, new in zip(seals[0].as_dict().values(), seals[1].as_dict().values(), strict=True):
        key = name.split("/")[0].encode()
        before, entry = other.split(key, 1)
        other = before + key + entry.replace(str(old).encode(), str(new).encode(), 1)
    members = [(one, b"[]\n" if one == name else data) for one, data in rest]
    path = tar_of(tmp_path / "list.tar", ("index.json", other), *members)
    refused(path)
    with pytest.raises(InputError, match=rf"{name} is not a JSON object"):
        unpack(path, FolderStore(tmp_path / "into"))


def test_a_link_is_no_member(packed: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "link.tar", "w:", format=tarfile.GNU_FORMAT) as tar:
        for n, (name, data) in enumerate(members_of(packed)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if n == 1:
                member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0
            tar.addfile(member, io.BytesIO(data))
    refused(tmp_path / "link.tar")


def test_a_store_that_is_full_is_not_the_packs_fault(
    packed: Path, other: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(InputError, match=f"^store {other.root}: the disk is full"):
            unpack(packed, other)
    assert [*other.list()] == []
    assert unpack(packed, other) == Unpacked(2, 0)
    assert next(other.list()) == Entry(A, {"masks.safetensors": 600, "record.json": 1})


def declared(path: Path, kind: bytes, size: int) -> Path:
    """A tar of one header that says more than there is."""
    member = tarfile.TarInfo("index.json")
    member.type, member.size = kind, size
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(tarfile.RECORDSIZE - tarfile.BLOCKSIZE))
    return path


@pytest.mark.parametrize(
    "kind",
    [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.CHRTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE],
)
def test_a_header_that_declares_more_than_there_is_adds_nothing(kind: bytes, tmp_path: Path) -> None:
    refused(declared(tmp_path / "huge.tar", kind, 1 << 60))


def test_a_file_of_holes_is_not_unfolded(tmp_path: Path) -> None:
    member = tarfile.TarInfo("index.json")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = header[483:495] = tarfile.itn(1 << 60, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    header[398:410] = tarfile.itn(0, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    header[148:155] = b"%06o\0" % tarfile.calc_chksums(bytes(header))[0]  # type: ignore[attr-defined]
    (tmp_path / "holes.tar").write_bytes(bytes(header) + bytes(tarfile.RECORDSIZE - tarfile.BLOCKSIZE))
    refused(tmp_path / "holes.tar")


def test_a_link_to_itself_and_lists_without_end_add_nothing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "link.tar", "w:") as tar:
        member = tarfile.TarInfo("index.json")
        member.type, member.linkname = tarfile.SYMTYPE, "index.json"
        tar.addfile(member)
    refused(tmp_path / "link.tar")
    refused(tar_of(tmp_path / "deep.tar", ("index.json", b"[" * 200_000)))
