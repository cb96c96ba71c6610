"""ImageNet, or any other folder of image files by class."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..core.errors import InputError, listed
from ..core.randomness import generator
from .decode import opened
from .images import Dataset, Files
from .sources import dataset
from .splits import stratified
from .tree import Listing, class_folders, listing

HELD_OUT = ("val", "validation", "test")
SAMPLED = 256  # headers that are read before a training starts: all of ImageNet's would take an hour


@dataset("imagefolder")
def imagefolder(path: Path | None = None) -> Dataset:
    """Image files in train/<class>/ and val/<class>/ (or validation/, test/), decoded while training."""
    if path is None:
        raise InputError("data set 'imagefolder' needs a path: the folder that holds train/ and val/")
    classes, train, test = _scanned(path)
    for part in (train.files, test.files):
        _check_headers(part)
    return Dataset("imagefolder", classes, train.files, test.files)


def fingerprint(folder: Path | str) -> str:
    """What is in a folder of images, in 64 hexadecimal digits: names and sizes of its files, not where or when."""
    _, train, test = _scanned(Path(folder))
    digest = hashlib.sha256()
    for part in (train, test):
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
    counts = train.files.labels.bincount(minlength=len(classes)).tolist()
    if bare := [name for name, count in zip(classes, counts, strict=True) if not count]:
        raise InputError(f"no images of class {listed(bare)} in {path / 'train'}: fill or remove the folder")
    return classes, train, test


def _check_headers(files: Files) -> None:
    """Opens a few images of every class, so that most of what can be wrong is found before a training starts."""
    sample = stratified(files.labels, min(len(files), SAMPLED), generator(0, "headers", 0))
    for index in sample.tolist():
        with opened(files.path(index)):
            pass
