"""Decoding happens once; a cache that is broken or cannot be is no one's problem."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from activeprune.data import Dataset, cifar, load
from activeprune.data.cache import directory
from activeprune.data.releases import CIFAR10
from tests.data.makers import noise, write_official, write_tree

TRAIN, TEST = noise(40, 10), noise(11, 10, seed=1)


@pytest.fixture(params=["official", "tree"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "official":
        monkeypatch.setattr(cifar, "CIFAR10", write_official(tmp_path, CIFAR10, TRAIN, TEST))
    else:
        write_tree(tmp_path, "train", TRAIN.take(TRAIN.labels.argsort(stable=True)), CIFAR10.classes)
        write_tree(tmp_path, "test", TEST.take(TEST.labels.argsort(stable=True)), CIFAR10.classes)
    return tmp_path


def decoding_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(cifar, "checked_bytes", fail)
    monkeypatch.setattr(cifar, "_small_image", fail)


def equal(one: Dataset, two: Dataset) -> bool:
    pairs = [(one.train, two.train), (one.test, two.test)]
    return all(torch.equal(a.pixels, b.pixels) and torch.equal(a.labels, b.labels) for a, b in pairs)


def test_the_second_time_nothing_is_decoded(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("cifar10", source)
    decoding_fails(monkeypatch)
    assert equal(load("cifar10", source), first)
    monkeypatch.chdir(source.parent)
    assert equal(load("cifar10", source.name), first)  # the same place by another name


def test_a_changed_source_is_decoded_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("cifar10", source)
    decoding_fails(monkeypatch)
    changed = next(path for path in sorted(source.rglob("*")) if path.is_file())
    os.utime(changed, ns=(1, 1))
    with pytest.raises(AssertionError, match="decoded again"):
        load("cifar10", source)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is mapped on Linux alone")
def test_pixels_are_the_mapped_file_itself(source: Path, cache: Path) -> None:
    for loaded in (load("cifar10", source), load("cifar10", source)):
        address = loaded.train.pixels.data_ptr()
        mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(cache) in line]
        spans = [tuple(int(end, 16) for end in fields[0].split("-")) for fields in mapped]
        assert any(low <= address < high for low, high in spans)


def test_what_is_written_to_the_tensors_stays_out_of_the_cache(source: Path) -> None:
    first = load("cifar10", source)
    kept = first.train.pixels.clone()
    first.train.pixels.zero_()
    assert torch.equal(load("cifar10", source).train.pixels, kept)


@pytest.mark.parametrize("damage", ["truncated", "emptied", "garbled", "deleted", "labels", "count"])
def test_a_damaged_cache_is_repaired(source: Path, cache: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("cifar10", source)
    kept = Dataset("kept", first.classes, first.train.take(torch.arange(40)), first.test.take(torch.arange(11)))
    del first
    pixels, labels = (next(cache.glob(f"decoded/cifar10-*-train-{what}.npy")) for what in ("pixels", "labels"))
    content = labels.read_bytes()
    match damage:
        case "truncated":
            pixels.write_bytes(pixels.read_bytes()[:-1000])
        case "emptied":
            pixels.write_bytes(b"")
        case "garbled":
            pixels.write_bytes(b"?" * 500)
        case "deleted":
            labels.unlink()
        case "labels":
            labels.write_bytes(content[:-8] + b"\xff" * 8)
        case "count":
            labels.write_bytes(next(cache.glob("decoded/cifar10-*-test-labels.npy")).read_bytes())
    assert equal(load("cifar10", source), kept)
    assert labels.read_bytes() == content
    decoding_fails(monkeypatch)
    assert equal(load("cifar10", source), kept)


def test_a_cache_that_cannot_be_written_is_done_without(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load("cifar10", source)
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", str(tmp_path / "file"))
    assert equal(load("cifar10", source), expected)


def test_many_at_once_all_get_it_and_leave_nothing_half_done(source: Path, cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: load("cifar10", source), range(8)))
    assert all(equal(one, found[0]) for one in found)
    assert sorted(path.suffix for path in (cache / "decoded").iterdir()) == [".npy"] * 4


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", "~/mine")
    assert directory() == Path.home() / "mine"
    monkeypatch.delenv("ACTIVEPRUNE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert directory() == tmp_path / "activeprune"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert directory() == Path.home() / ".cache" / "activeprune"
