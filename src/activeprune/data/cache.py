"""Pixels are decoded once; after that they are mapped into memory, where all processes share the same pages."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..files import whole_file
from .images import Dataset, Images

FORMAT = 1  # counted up when the same sources decode to something else


def directory() -> Path:
    """Where downloads and decoded pixels are kept: `ACTIVEPRUNE_CACHE`, or `activeprune` in the user's cache folder."""
    if own := os.environ.get("ACTIVEPRUNE_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "activeprune"


def decoded_once(
    name: str,
    classes: tuple[str, ...],
    root: Path,
    sources: Iterable[tuple[bytes, int, int]],
    decode: Callable[[], tuple[Images, Images]],
) -> Dataset:
    """Train and test images as `decode()` makes them, or as it made them from the same sources before.

    `sources` are name inside `root`, size and time of change of each file. A cache that is damaged is made anew, and
    one that cannot be written is done without.
    """
    stem = directory() / "decoded" / f"{name}-{_stamp(root, sources)}"
    try:
        return _opened(name, classes, stem)
    except (OSError, ValueError, EOFError, SyntaxError):  # not there, cut off, or not what was written
        train, test = decode()
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for part, images in (("train", train), ("test", test)):
            _write(Path(f"{stem}-{part}-pixels.npy"), images.pixels)
            _write(Path(f"{stem}-{part}-labels.npy"), images.labels)
        return _opened(name, classes, stem)
    except OSError:
        return Dataset(name, classes, train, test)


def _stamp(root: Path, sources: Iterable[tuple[bytes, int, int]]) -> str:
    digest = hashlib.sha256(b"%d %s\0" % (FORMAT, os.fsencode(root.resolve())))
    for file, size, time in sources:
        digest.update(b"%d %d %s\0" % (size, time, file))
    return digest.hexdigest()[:32]


def _opened(name: str, classes: tuple[str, ...], stem: Path) -> Dataset:
    train, test = (
        Images(*(_mapped(Path(f"{stem}-{part}-{what}.npy")) for what in ("pixels", "labels")))
        for part in ("train", "test")
    )
    return Dataset(name, classes, train, test)


def _mapped(path: Path) -> Tensor:
    # Mapped copy-on-write: torch has no read-only tensors, and nothing that is written ever reaches the file.
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def _write(path: Path, tensor: Tensor) -> None:
    with whole_file(path) as part, part.open("xb") as file:
        np.save(file, tensor.numpy())
