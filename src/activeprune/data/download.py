"""An official archive, fetched into the cache folder: whole and as published, or not at all."""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import urlopen

from ..core.errors import InputError
from .releases import Release

BLOCK = 1 << 20
PATIENCE = 30  # seconds without a byte


def downloaded(release: Release, into: Path) -> Path:
    """The folder of the release inside `into`, fetched if it is not there."""
    target = into / release.folder
    if target.is_dir():
        return target
    try:
        into.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=into, prefix=".download-") as temporary:  # gone again, whatever happens
            archive = Path(temporary) / "archive"
            found = _fetch(release.address, archive)
            if found != release.md5:
                raise InputError(
                    f"{release.address} did not arrive as published: MD5 {found}, expected {release.md5}: try again"
                )
            unpacked = _unpack(release, archive, Path(temporary) / release.folder)
            try:
                unpacked.rename(target)
            except OSError:
                if not target.is_dir():  # where another process was faster, its folder is as good
                    raise
    except (OSError, HTTPException) as error:  # no network, no such host, no room, no permission
        if isinstance(error, HTTPError):
            error.close()  # it is an open answer at the same time
        raise InputError(
            f"cannot fetch {release.address} ({getattr(error, 'reason', None) or error}): "
            f"put its folder {release.folder!r} into {into}, or pass the folder that holds it as path "
            "(run: --set data.path=DIR, dnr: --path DIR)"
        ) from error
    return target


def _fetch(address: str, archive: Path) -> str:
    """Writes what is at an address to a file, and returns its MD5."""
    digest = hashlib.md5(usedforsecurity=False)
    with urlopen(address, timeout=PATIENCE) as answer, archive.open("xb") as file:
        size = int(answer.headers.get("Content-Length") or 0)
        with _progress(address.rpartition("/")[2], size) as advance:
            while block := answer.read(BLOCK):
                file.write(block)
                digest.update(block)
                advance(len(block))
    return digest.hexdigest()


def _unpack(release: Release, archive: Path, folder: Path) -> Path:
    """Takes the files of the release out of its archive by name, and nothing else."""
    folder.mkdir()
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for name in release.files:
                member = tar.getmember(f"{release.folder}/{name}")
                content = tar.extractfile(member) if member.isfile() else None
                if content is None:
                    raise InputError(f"{name} in {release.address} is no file")
                (folder / name).write_bytes(content.read())
    except (tarfile.TarError, EOFError, KeyError) as error:
        raise InputError(f"{release.address} is not the archive that was expected: {error}") from error
    return folder


@contextmanager
def _progress(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a line for every tenth elsewhere; all of it on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(name, total=size or None)
            yield lambda count: bar.advance(task, count)
        return
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        tenths = 10 * done // size if size else 0
        done += count
        if size and 10 * done // size > tenths:
            print(f"{name}: {100 * done // size} % of {size / 1e6:.1f} MB", file=sys.stderr)

    print(f"fetching {name}", file=sys.stderr)
    yield advance
