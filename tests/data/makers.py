"""Small data sets in every layout, written by the tests themselves."""

from __future__ import annotations

import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from activeprune.data import Files, Images, Normalisation, scaled
from activeprune.data.releases import CIFAR10, CIFAR100, Release


def noise(n: int, classes: int, shape: tuple[int, int, int] = (3, 32, 32), seed: int = 0) -> Images:
    """Random pixels, and labels in an order that is not theirs."""
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (n, *shape), generator=draw, dtype=torch.uint8)
    return Images(pixels, (torch.arange(n) * 7 + 3) % classes)


def normalised(pixels: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """As a feed does it."""
    return scaled(pixels, *Normalisation(mean, std).factors(pixels.device))


def paths(files: Files) -> list[Path]:
    """Where all of them are."""
    return [files.path(index) for index in range(len(files))]


def python2_pickle(content: dict[str, Any]) -> bytes:
    """Protocol 2 as Python 2 and numpy 1 wrote it: every text and the array's data are byte strings."""

    def of(value: Any) -> bytes:
        if isinstance(value, str):
            return b"U" + bytes([len(value)]) + value.encode("ascii")
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(of, value)) + b"e"
        kind = b"cnumpy\ndtype\n" + b"U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        shape = b"".join(map(of, value.shape))
        data = b"T" + struct.pack("<i", value.size) + value.tobytes()
        blank = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        return blank + b"(K\x01(" + shape + b"t" + kind + b"\x89" + data + b"tb"

    return b"\x80\x02}(" + b"".join(of(key) + of(value) for key, value in content.items()) + b"u."


def python3_pickle(content: dict[str, Any]) -> bytes:
    """Protocol 2 as Python 3 writes it: bytes are text to be encoded."""
    return pickle.dumps(content, protocol=2)


def write_official(
    folder: Path,
    release: Release,
    train: Images,
    test: Images,
    dumps: Callable[[dict[str, Any]], bytes] = python2_pickle,
    **changes: Any,
) -> Release:
    """Files in the official layout, and the release that knows their counts and checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    contents = {release.meta: {release.class_key: list(release.classes), "num_vis": 3072}}
    for part, images in (("train", train), ("test", test)):
        names = list(getattr(release, part))
        rows = torch.arange(len(images)).tensor_split(len(names))
        for name, index in zip(names, rows, strict=True):
            data = images.pixels[index].reshape(len(index), -1).numpy()
            contents[name] = {"batch_label": name, release.label_key: images.labels[index].tolist(), "data": data}
            counts[part][name] = len(index)
    files = {name: dumps(contents[name] | changes.get(name.replace(".", "_"), {})) for name in release.files}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return replace(release, files=md5, train=counts["train"], test=counts["test"])


def write_tree(root: Path, part: str, images: Images, classes: tuple[str, ...]) -> None:
    """PNG files by class, numbered in the order of the images."""
    for number, (pixels, label) in enumerate(zip(images.pixels, images.labels.tolist(), strict=True)):
        write_image(root / part / classes[label] / f"{number:05}.png", pixels.permute(1, 2, 0).numpy())


def write_image(path: Path, pixels: np.ndarray, mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


RELEASES = {"cifar10": CIFAR10, "cifar100": CIFAR100}
