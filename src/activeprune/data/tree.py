"""Images in folders by class: `<part>/<class>/**/*.png`, and what can be known of them without opening one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.errors import InputError, listed
from .images import Files

SUFFIXES = (b".jpg", b".jpeg", b".png", b".webp", b".bmp")


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of one part, by class and then by name, their `sizes` in bytes and `times` of change in ns, int64."""

    files: Files
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        return zip(self.files.names.tolist(), self.sizes.tolist(), self.times.tolist(), strict=True)


def class_folders(folder: Path) -> tuple[str, ...]:
    """The sorted names of the visible folders inside one; none where it does not exist.

    >>> class_folders(Path("/no/such/folder"))
    ()
    """
    if not folder.is_dir():
        return ()
    with os.scandir(folder) as entries:
        return tuple(sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")))


def listing(root: Path, part: str, classes: Sequence[str]) -> Listing:
    """All image files of `root/part`, with the label number of their class folder, which must be one of `classes`."""
    folders = set(class_folders(root / part))
    if strangers := sorted(folders.difference(classes)):
        near = get_close_matches(strangers[0], classes, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {len(classes)}, such as {classes[0]!r}"
        raise InputError(f"folder {root / part / strangers[0]} is no class of this data set: {hint}")
    names, rows, labels = [], [], []
    for label, name in enumerate(classes):
        if name not in folders:
            continue
        found = sorted(_images_in(os.fsencode(root / part / name), os.fsencode(f"{part}/{name}/")))
        if found:  # numpy cannot join an array of names with none
            names.append(np.array([file for file, _, _ in found]))
            rows.append(np.array([(size, time) for _, size, time in found], dtype=np.int64))
            labels.append(torch.full((len(found),), label))
    if not names:
        raise InputError(f"no images in {root / part}: <class>/*.png (or jpg, jpeg, webp, bmp) are needed there")
    sizes, times = np.concatenate(rows).T
    return Listing(Files(root, np.concatenate(names), torch.cat(labels)), sizes, times)


def check_complete(folder: Path, classes: Sequence[str], train: Files, labels: Iterable[int]) -> None:
    """Refuses a class of `labels` that has no image to train on."""
    trained = set(train.labels.tolist())
    if bare := [classes[label] for label in sorted(set(labels) - trained)]:
        raise InputError(f"no images of class {listed(bare)} in {folder}: there is nothing to train on")


def _images_in(folder: bytes, prefix: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name (with `prefix`), size and time of every image file, also in folders inside; hidden ones left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                if entry.is_dir():
                    yield from _images_in(entry.path, prefix + entry.name + b"/")
                elif entry.name.lower().endswith(SUFFIXES):
                    stat = entry.stat()
                    if not stat.st_size:
                        raise InputError(f"{os.fsdecode(entry.path)} is empty (0 bytes): an image is needed")
                    yield prefix + entry.name, stat.st_size, stat.st_mtime_ns
    except OSError as error:
        raise InputError(f"{os.fsdecode(error.filename or folder)} cannot be read: {error.strerror}") from error
