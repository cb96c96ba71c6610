"""Which images are trained on, which choose, and which only report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.budget import shared_out
from ..core.errors import InputError, whole
from ..core.randomness import generator
from .images import Dataset, Files, Images

MOST_VALIDATION = 50_000  # as many as ImageNet's own validation images, which are the test images here


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test images of one seed, each in the order of the data set.

    Validation images are held out of the training images; test images choose nothing. `rows` says where the images of
    "train", "validation" and "test" are in the data set: its training images are counted first, then its test images.
    """

    dataset: Dataset
    rows: Mapping[str, Tensor]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels."""
        return self.dataset.classes

    @property
    def train(self) -> Images | Files:
        """What is trained on, taken out of the data set."""
        return self.dataset.train.take(self.rows["train"])

    @property
    def validation(self) -> Images | Files:
        """What chooses."""
        return self.dataset.train.take(self.rows["validation"])

    @property
    def test(self) -> Images | Files:
        """What only reports."""
        return self.dataset.test.take(self.rows["test"] - len(self.dataset.train))


def split(dataset: Dataset, seed: int, validation: int | None = None, limit: int | None = None) -> Split:
    """Holds `validation` images out of the training images, each class in proportion, drawn by `seed`.

    The default is a tenth, and at most 50,000. `limit` first cuts the training images and the test images down to
    that many each, again each class in proportion and the same ones for every seed.

    >>> from .sources import load
    >>> parts = split(load("digits"), seed=0, limit=500)
    >>> len(parts.train), len(parts.validation), len(parts.test)
    (450, 50, 359)
    """
    limit = None if limit is None else whole("limit", limit, 2)
    may_train, may_test = _limited(dataset.train, limit), _limited(dataset.test, limit)
    n = len(may_train)
    if n < 2:
        raise InputError(f"data set {dataset.name!r} has {n} training image: with none to hold out, 2 are needed")
    held_out = max(min(n // 10, MOST_VALIDATION), 1) if validation is None else whole("validation", validation, 1)
    if held_out >= n:
        raise InputError(f"validation = {held_out} of {n} training images: none would be left to train on")
    chosen = stratified(dataset.train.labels[may_train], held_out, generator(seed, "split", 0))
    kept = torch.ones(n, dtype=torch.bool)
    kept[chosen] = False
    test = may_test + len(dataset.train)
    return Split(dataset, {"train": may_train[kept], "validation": may_train[chosen], "test": test})


def stratified(labels: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """Ascending positions of `count` of the labels, each class in proportion by largest remainder, ties to the lower.

    A class draws the same numbers whatever its share is: with classes of equal size, fewer are a subset of more.

    >>> stratified(torch.tensor([0, 1, 0, 1, 1, 1]), 3, torch.Generator().manual_seed(0)).shape
    torch.Size([3])
    """
    sizes = labels.bincount().tolist()
    by_class = torch.split(labels.argsort(stable=True), sizes)
    quotas = shared_out(count, sizes)
    chosen = [rows[torch.randperm(len(rows), generator=draw)[:n]] for rows, n in zip(by_class, quotas, strict=True)]
    return torch.cat(chosen).sort().values


def _limited(images: Images | Files, limit: int | None) -> Tensor:
    """Positions of those images that are used at all."""
    if limit is None or len(images) <= limit:
        return torch.arange(len(images))
    return stratified(images.labels, limit, generator(0, "limit", 0))
