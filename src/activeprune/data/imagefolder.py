"""ImageNet, or any other folder of image files by class."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ..core.errors import InputError, listed
from . import cache
from .decode import opened, pixels_of
from .images import Dataset, Files, Outline
from .sources import dataset
from .streamed import RESOLUTION
from .tree import Listing, check_complete, class_folders, listing

HELD_OUT = ("val", "validation", "test")
USUAL = Outline((3, RESOLUTION, RESOLUTION), 1000)  # ImageNet
AT_ONCE = 10_000  # images that are checked between two lines of progress


def fingerprint(folder: Path | str) -> str:
    """What is in a folder of images, in 64 hexadecimal digits: names and sizes of its files, not where or when."""
    _, train, test = _scanned(Path(folder))
    return _digest(train, test)


def _outline(path: Path | None) -> Outline:
    """The classes are counted; where there is no folder they are ImageNet's."""
    classes = 0 if path is None else len(class_folders(path / "train"))
    return USUAL._replace(classes=classes or USUAL.classes)


@dataset("imagefolder", fingerprint=fingerprint, outline=_outline)
def imagefolder(path: Path | None = None) -> Dataset:
    """Image files in train/<class>/ and val/<class>/ (or validation/, test/), decoded while training."""
    if path is None:
        raise InputError("data set 'imagefolder' needs a path: the folder that holds train/ and val/")
    classes, train, test = _scanned(path)
    content = _digest(train, test)
    _check_decoding(content, (train.files, test.files))
    return Dataset("imagefolder", classes, train.files, test.files, content)


def _digest(*parts: Listing) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for name, size, _ in part:
            digest.update(b"%d %s\0" % (size, name))  # no file name holds a zero byte
    return digest.hexdigest()


def _scanned(path: Path) -> tuple[tuple[str, ...], Listing, Listing]:
    """The classes, and what is in the two parts."""
    classes = class_folders(path / "train")
    if not classes:
        raise InputError(f"{path} is no folder of images: train/<class>/*.jpg and val/<class>/*.jpg are needed")
    held_out = [part for part in HELD_OUT if class_folders(path / part)]
    if len(held_out) != 1:
        found = f"there are {listed(held_out)}" if held_out else "there is none of them"
        raise InputError(f"{path} must hold classes in one of val/, validation/ and test/: {found}")
    train, test = (listing(path, part, classes) for part in ("train", *held_out))
    check_complete(path / "train", classes, train.files, range(len(classes)))
    return classes, train, test


def _check_decoding(content: str, parts: Iterable[Files]) -> None:
    """Decodes every image once, so that what is wrong is found before a training starts.

    A folder that was found whole is remembered by its content, names and sizes; where that cannot be written down, it
    is looked at again the next time. JPEGs are read at an eighth of their size, which still reads every byte.
    """
    whole = cache.directory() / "whole" / content
    if whole.exists():
        return
    for files in parts:
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoders let other threads run
            for start in range(0, len(files), AT_ONCE):
                some = range(start, min(start + AT_ONCE, len(files)))
                list(pool.map(_decode, map(files.path, some)))
                if len(files) > AT_ONCE:
                    print(f"checking images: {start} of {len(files)}", file=sys.stderr)
    with suppress(OSError):
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.touch()


def _decode(path: Path) -> None:
    with opened(path) as image:
        image.draft("RGB", (1, 1))
        pixels_of(image)
