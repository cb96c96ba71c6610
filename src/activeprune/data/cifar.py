"""CIFAR-10 and CIFAR-100, from the official files or from a tree of images."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InputError
from . import cache
from .decode import opened, pixels_of
from .download import downloaded
from .images import Dataset, Files, Images, Outline, in_range
from .pickles import checked_bytes, text, unpickled
from .releases import CIFAR10, CIFAR100, Release
from .sources import dataset
from .tree import check_complete, listing

SHAPE = (3, 32, 32)


@dataset("cifar10", same_everywhere=True, outline=Outline(SHAPE, 10))
def cifar10(path: Path | None = None) -> Dataset:
    """60,000 colour images, 32 × 32, in 10 classes; fetched from their makers if no path says where they are."""
    return _loaded("cifar10", CIFAR10, path)


@dataset("cifar100", same_everywhere=True, outline=Outline(SHAPE, 100))
def cifar100(path: Path | None = None) -> Dataset:
    """60,000 colour images, 32 × 32, in 100 classes; fetched from their makers if no path says where they are."""
    return _loaded("cifar100", CIFAR100, path)


def _loaded(name: str, release: Release, path: Path | None) -> Dataset:
    if path is None:
        return _from_official(name, release, downloaded(release, cache.directory()))
    for folder in (path, path / release.folder):
        if any((folder / file).is_file() for file in release.files):
            return _from_official(name, release, folder)
    if (path / "train").is_dir():
        return _from_tree(name, release, path)
    if not path.is_dir():
        raise InputError(f"no {name} in {path}: there is no such folder; without a path the data are downloaded")
    raise InputError(
        f"no {name} in {path}: it must hold the folder {release.folder}, or train/<class>/*.png and test/<class>/*.png"
        "; without a path the data are downloaded"
    )


def _from_official(name: str, release: Release, folder: Path) -> Dataset:
    def decode() -> tuple[Images, Images]:
        _check_classes(release, folder)
        return _official(release, folder, release.train), _official(release, folder, release.test)

    sources = []
    for file in release.files:
        if not (folder / file).is_file():
            raise InputError(f"{folder / file} is missing: download the data again, or name another path")
        stat = (folder / file).stat()
        sources.append((file.encode(), stat.st_size, stat.st_mtime_ns))
    return cache.decoded_once(name, release.classes, folder, sources, decode)


def _official(release: Release, folder: Path, counts: Mapping[str, int]) -> Images:
    """Images of one part, file after file."""
    parts = [_batch(release, folder / file, count) for file, count in counts.items()]
    return Images(torch.cat([images.pixels for images in parts]), torch.cat([images.labels for images in parts]))


def _batch(release: Release, path: Path, count: int) -> Images:
    found = unpickled(checked_bytes(path, release.files[path.name]), path)
    rows, labels = found.get("data"), found.get(release.label_key)
    if not isinstance(rows, np.ndarray) or rows.shape[1:] != (np.prod(SHAPE),):
        raise InputError(f"{path}: {getattr(rows, 'shape', rows)!r} is no array of images, [n, 3072] is needed")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise InputError(f"{path}: its {release.label_key} are no list of whole numbers")
    if not len(rows) == len(labels) == count:
        raise InputError(f"{path}: {len(rows)} images and {len(labels)} labels where {count} of each belong")
    numbers = torch.tensor(labels)
    if not in_range(numbers, len(release.classes)):
        raise InputError(
            f"{path}: labels run from {min(labels)} to {max(labels)}, "
            f"those of {len(release.classes)} classes from 0 to {len(release.classes) - 1}"
        )
    return Images(torch.from_numpy(rows.reshape(-1, *SHAPE).copy()), numbers)


def _check_classes(release: Release, folder: Path) -> None:
    path = folder / release.meta
    names = unpickled(checked_bytes(path, release.files[release.meta]), path).get(release.class_key)
    if not isinstance(names, list) or tuple(map(text, names)) != release.classes:
        raise InputError(
            f"{path}: its {release.class_key} are not the {len(release.classes)} official classes in order"
        )


def _from_tree(name: str, release: Release, root: Path) -> Dataset:
    train, test = (listing(root, part, release.classes) for part in ("train", "test"))
    check_complete(root / "train", release.classes, train.files, test.files.labels.tolist())

    def decode() -> tuple[Images, Images]:
        return _decoded(train.files), _decoded(test.files)

    return cache.decoded_once(name, release.classes, root, chain(train, test), decode)


def _decoded(files: Files) -> Images:
    pixels = torch.empty(len(files), *SHAPE, dtype=torch.uint8)
    for index in range(len(files)):
        pixels[index] = _small_image(files.path(index))
    return Images(pixels, files.labels)


def _small_image(path: Path) -> Tensor:
    with opened(path) as image:
        if (image.mode, *image.size) != ("RGB", 32, 32):
            raise InputError(f"{path} is {image.width}x{image.height} {image.mode}, not 32x32 RGB")
        return pixels_of(image)
