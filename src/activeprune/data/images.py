"""Images with their labels: pixels in memory, or files on disk that are decoded when they are needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.errors import InputError, listed


class Outline(NamedTuple):
    """What can be known of a data set before any image is there: channels, height and width of one, and the classes."""

    shape: tuple[int, int, int]
    classes: int


@dataclass(frozen=True, eq=False)
class Images:
    """`pixels` uint8 [n, C, H, W] and `labels` int64 [n], on one device.

    >>> Images(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([3, 0])).shape
    (1, 8, 8)
    """

    pixels: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4:
            raise InputError(f"pixels must be uint8 [n, C, H, W], not {_described(self.pixels)}")
        if 0 in self.pixels.shape:
            raise InputError(f"there are no pixels in a tensor of shape {list(self.pixels.shape)}")
        _check_labels(self.labels, len(self.pixels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    def take(self, index: Tensor) -> Images:
        """The images at these positions, copied."""
        return Images(self.pixels[index], self.labels[index])

    def to(self, device: torch.device | str) -> Images:
        """The same images on a device."""
        return Images(self.pixels.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Files:
    """Image files that are not decoded yet: `names` [n], relative to the folder `root`, and `labels` int64 [n].

    The names are one array of bytes, not n objects: a million of them take tens of megabytes, and a worker process
    that was forked shares them.
    """

    root: Path
    names: NDArray[np.bytes_]
    labels: Tensor

    def __post_init__(self) -> None:
        if self.names.dtype.kind != "S" or self.names.ndim != 1:
            raise InputError(f"names of files must be one array of bytes, not {self.names.dtype} {self.names.shape}")
        _check_labels(self.labels, len(self.names))

    def __len__(self) -> int:
        return len(self.labels)

    def path(self, index: int) -> Path:
        """Where one image is."""
        return self.root / os.fsdecode(self.names[index])

    def take(self, index: Tensor) -> Files:
        """The files at these positions."""
        return Files(self.root, self.names[index.numpy()], self.labels[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set as its makers cut it: what may be trained on, and what is only ever tested on.

    `classes` are the names of the labels 0, 1, 2...; train and test are both `Images` or both `Files`. `content` is the
    fingerprint of a folder that is known by what is in it.
    """

    name: str
    classes: tuple[str, ...]
    train: Images | Files
    test: Images | Files
    content: str | None = None

    @property
    def channels(self) -> int:
        """Of an image: files are decoded in colour."""
        return self.train.shape[0] if isinstance(self.train, Images) else 3

    def __post_init__(self) -> None:
        if type(self.train) is not type(self.test):
            raise InputError(f"data set {self.name!r}: train and test must both be Images or both be Files")
        if isinstance(self.train, Images) and isinstance(self.test, Images) and self.train.shape != self.test.shape:
            raise InputError(
                f"data set {self.name!r}: images of shape {self.train.shape} in train, {self.test.shape} in test"
            )
        if doubled := sorted({name for name in self.classes if self.classes.count(name) > 1}):
            raise InputError(f"data set {self.name!r}: two classes are called {listed(doubled)}")
        for part, images in (("train", self.train), ("test", self.test)):
            if not in_range(images.labels, len(self.classes)):
                low, high = images.labels.aminmax()
                raise InputError(
                    f"data set {self.name!r}: labels of {part} run from {low} to {high}, "
                    f"those of {len(self.classes)} classes from 0 to {len(self.classes) - 1}"
                )


def in_range(labels: Tensor, classes: int) -> bool:
    """Whether every label is the number of a class.

    >>> in_range(torch.tensor([0, 9]), 10), in_range(torch.tensor([0, 10]), 10), in_range(torch.tensor([-1]), 10)
    (True, False, False)
    """
    low, high = labels.aminmax()
    return bool((low >= 0) & (high < classes))


def _check_labels(labels: Tensor, count: int) -> None:
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise InputError(f"labels must be int64 [n], not {_described(labels)}")
    if len(labels) != count:
        raise InputError(f"{count} images and {len(labels)} labels: each image needs one label")
    if not count:
        raise InputError("there are no images")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
