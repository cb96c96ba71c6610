"""ImageNet, or any other folder of image files by class."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..core.errors import InputError, listed
from ..core.randomness import generator
from .decode import opened, pixels_of
from .images import Dataset, Files
from .sources import dataset
from .splits import stratified
from .tree import Listing, check_complete, class_folders, listing

HELD_OUT = ("val", "validation", "test")
SAMPLED = 1024  # images that are decoded before a training starts: all of ImageNet's would take hours


@dataset("imagefolder")
def imagefolder(path: Path | None = None) -> Dataset:
    """Image files in train/<class>/ and val/<class>/ (or validation/, test/), decoded while training."""
    if path is None:
        raise InputError("data set 'imagefolder' needs a path: the folder that holds train/ and val/")
    classes, train, test = _scanned(path)
    for part in (train.files, test.files):
        _check_decoding(part)
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
    check_complete(path / "train", classes, train.files, range(len(classes)))
    return classes, train, test


def _check_decoding(files: Files) -> None:
    """Decodes all images of a small folder and a sample of a large one, to find what is wrong before a training starts.

    What is wrong with the others is found, and named, when a training meets them.
    """
    sample = stratified(files.labels, min(len(files), SAMPLED), generator(0, "sample", 0))
    for index in sample.tolist():
        with opened(files.path(index)) as image:
            pixels_of(image)
