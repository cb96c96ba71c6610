"""An archive arrives whole, checked and unpacked by name, or leaves nothing behind. The server is on this machine."""

import hashlib
import io
import socket
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import torch

import activeprune as ap
from activeprune.data import cifar, load
from activeprune.data.releases import CIFAR10, Release
from tests.data.makers import noise, write_official

TRAIN, TEST = noise(40, 10), noise(11, 10, seed=1)


class Handler(BaseHTTPRequestHandler):
    archives: dict[str, bytes]

    def do_GET(self) -> None:
        content = self.archives.get(self.path)
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(self.archives["/whole.tar.gz"]) if content else 0))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Release]]:
    """Its address, and a release whose archive it has: whole, cut short, and changed in one byte."""
    release = write_official(tmp_path / CIFAR10.folder, CIFAR10, TRAIN, TEST)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(tmp_path / CIFAR10.folder, CIFAR10.folder)
        stranger = tarfile.TarInfo("../outside")
        stranger.size = 4
        tar.addfile(stranger, io.BytesIO(b"evil"))
    whole = packed.getvalue()
    archives = {
        "/whole.tar.gz": whole,
        "/short.tar.gz": whole[:-100],
        "/changed.tar.gz": whole[:-1] + bytes([whole[-1] ^ 1]),
    }
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Archives", (Handler,), {"archives": archives})) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", replace(release, md5=hashlib.md5(whole).hexdigest())
        http.shutdown()
        thread.join()


def offer(monkeypatch: pytest.MonkeyPatch, release: Release, address: str) -> None:
    monkeypatch.setattr(cifar, "CIFAR10", replace(release, address=address))


def test_without_a_path_it_is_fetched_once(
    server: tuple[str, Release], cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, release = server
    offer(monkeypatch, release, f"{address}/whole.tar.gz")
    found = load("cifar10")
    assert torch.equal(found.train.pixels, TRAIN.pixels)
    assert sorted(path.name for path in (cache / CIFAR10.folder).iterdir()) == sorted(CIFAR10.files)
    assert sorted(path.name for path in cache.iterdir()) == [CIFAR10.folder, "decoded"]
    assert not (cache.parent / "outside").exists()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "fetching whole.tar.gz"
    assert "100 %" in err.splitlines()[-1]
    offer(monkeypatch, release, "http://127.0.0.1:1/never-asked.tar.gz")
    assert torch.equal(load("cifar10").test.labels, TEST.labels)


def test_on_a_terminal_there_is_a_bar(
    server: tuple[str, Release], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, release = server
    offer(monkeypatch, release, f"{address}/whole.tar.gz")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    load("cifar10")
    out, err = capsys.readouterr()
    assert out == ""
    assert "whole.tar.gz" in err
    assert "kB" in err


def test_two_at_once_both_get_it(server: tuple[str, Release], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address, release = server
    offer(monkeypatch, release, f"{address}/whole.tar.gz")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: load("cifar10"), range(2)))
    assert all(torch.equal(one.train.pixels, TRAIN.pixels) for one in found)
    assert sorted(path.name for path in cache.iterdir()) == [CIFAR10.folder, "decoded"]


@pytest.mark.parametrize("archive", ["short", "changed"])
def test_what_arrives_damaged_leaves_nothing_behind(
    server: tuple[str, Release], archive: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, release = server
    offer(monkeypatch, release, f"{address}/{archive}.tar.gz")
    with pytest.raises(ap.InputError, match=rf"{archive}.tar.gz") as caught:
        load("cifar10")
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_changed_archive_says_both_checksums(server: tuple[str, Release], monkeypatch: pytest.MonkeyPatch) -> None:
    address, release = server
    offer(monkeypatch, release, f"{address}/changed.tar.gz")
    with pytest.raises(ap.InputError, match=f"as published: MD5 [0-9a-f]{{32}}, expected {release.md5}: try again"):
        load("cifar10")


def test_an_archive_of_something_else_is_refused(
    server: tuple[str, Release], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, release = server
    offer(monkeypatch, replace(release, files={**release.files, "data_batch_6": "0" * 32}), f"{address}/whole.tar.gz")
    with pytest.raises(ap.InputError, match=r"is not the archive that was expected: .*data_batch_6"):
        load("cifar10")
    assert list(cache.iterdir()) == []


def test_without_a_network_one_line_says_what_to_put_where(
    server: tuple[str, Release], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, release = server
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/cifar.tar.gz"
    for nowhere, reason in ((dead, "refused"), (f"{address}/missing.tar.gz", "Not Found")):
        offer(monkeypatch, release, nowhere)
        help_line = (
            rf"^cannot fetch {nowhere} \(.*{reason}\): put its folder 'cifar-10-batches-py' into {cache}, or pass"
        )
        with pytest.raises(ap.InputError, match=help_line) as caught:
            load("cifar10")
        assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ap.InputError, match=f"cannot fetch .*{tmp_path / 'file'}"):
        load("cifar10")
