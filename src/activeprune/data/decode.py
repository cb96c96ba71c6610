"""One image file as pixels: the crops that ImageNet is trained and tested with, to the byte as torchvision's are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

AREA = (0.08, 1.0)  # of the image, as the Inception networks were trained
RATIO = (3 / 4, 4 / 3)  # width to height
TRIES = 10
CENTRE = 0.875  # of the shorter side: 224 of 256


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """An image whose header has been read; whatever is wrong with it then, or in the block, names the file."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            yield image
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error
    except Exception as error:  # a broken file makes decoders raise anything: OSError, SyntaxError, struct.error
        raise InputError(f"{path} cannot be decoded: {type(error).__name__}: {error}") from error


def pixels_of(image: Image.Image) -> Tensor:
    """uint8 [3, H, W]; grey, palette and CMYK images become RGB, and a camera's orientation mark is ignored.

    More than 8 bits a channel are refused: the conversion would turn them white.
    """
    return torch.from_numpy(np.array(_as_rgb(image))).permute(2, 0, 1)


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"mode {image.mode} has more than 8 bits a channel")
    return image.convert("RGB")


def central(path: Path, resolution: int) -> Tensor:
    """The shorter side scaled to `resolution` / 0.875, and the centre of that: uint8 [3, resolution, resolution]."""
    from PIL import Image

    with opened(path) as image:
        width, height = image.size
        short = round(resolution / CENTRE)
        wide, high = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
        if wide * high > (Image.MAX_IMAGE_PIXELS or inf):  # a line of pixels would become a field of them
            raise ValueError(f"{width}x{height} pixels are too narrow: scaled, they would be {wide}x{high}")
        left, top = round((wide - resolution) / 2), round((high - resolution) / 2)
        scaled = _as_rgb(image).resize((wide, high), Image.Resampling.BILINEAR)
        return pixels_of(scaled.crop((left, top, left + resolution, top + resolution)))


def random_resized(path: Path, resolution: int, draw: torch.Generator, flip: bool) -> Tensor:
    """A random part of the image scaled to uint8 [3, resolution, resolution], mirrored left to right if `flip`."""
    from PIL import Image

    with opened(path) as image:
        top, left, height, width = random_box(image.height, image.width, draw)
        part = _as_rgb(image).crop((left, top, left + width, top + height))
        part = part.resize((resolution, resolution), Image.Resampling.BILINEAR)
        return pixels_of(part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else part)


def random_box(height: int, width: int, draw: torch.Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random part: 8-100 % of the area, 3:4 to 4:3, log-uniform.

    Where none of ten fits into the image, the largest part in its middle with a ratio in those bounds.

    >>> random_box(10, 1000, torch.Generator().manual_seed(0))
    (0, 493, 10, 13)
    """

    def uniform(low: float, high: float) -> Tensor:
        return torch.empty(1).uniform_(low, high, generator=draw)

    def below(end: int) -> int:
        return int(torch.randint(0, end, (1,), generator=draw).item())

    for _ in range(TRIES):
        area = height * width * uniform(*AREA).item()
        ratio = uniform(log(RATIO[0]), log(RATIO[1])).exp().item()
        w, h = round(sqrt(area * ratio)), round(sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return below(height - h + 1), below(width - w + 1), h, w
    h = min(height, round(width / RATIO[0]))
    w = min(width, round(height * RATIO[1]))
    return (height - h) // 2, (width - w) // 2, h, w
