"""Handwritten digits that come with scikit-learn: no file, no download."""

from __future__ import annotations

from pathlib import Path

import torch

from ..core.errors import InputError
from ..core.randomness import generator
from .images import Dataset, Images, Outline
from .sources import dataset
from .splits import stratified

GREY_STEP = 15  # scikit-learn counts 0..16; times 15 that is 0..240, and no two grey levels fall together


@dataset("digits", same_everywhere=True, outline=Outline((1, 8, 8), 10))
def digits(path: Path | None = None) -> Dataset:
    """1,797 handwritten digits, 8 × 8 grey; they come with the library."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # a second to import

    if path is not None:
        raise InputError(f"data set 'digits' comes with the library and takes no path, not {str(path)!r}")
    bundled = load_digits()
    pixels = (torch.from_numpy(bundled.images) * GREY_STEP).to(torch.uint8).unsqueeze(1)
    images = Images(pixels, torch.from_numpy(bundled.target).long())
    tested = torch.zeros(len(images), dtype=torch.bool)
    tested[stratified(images.labels, len(images) // 5, generator(0, "digits", 0))] = True
    train, test = (images.take(rows.nonzero().flatten()) for rows in (~tested, tested))
    return Dataset("digits", tuple(str(digit) for digit in range(10)), train, test)
