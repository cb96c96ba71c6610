"""Data sets, found by name, and a door for one's own.

A loader is a function `load(path=None)` that returns a `Dataset`; further parameters with a default are its options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ..core.errors import InputError
from ..core.registry import Registered, Registry, check_options
from ..extras import repair_torchvision
from .images import Dataset, Images, Outline

Loader = TypeVar("Loader", bound=Callable[..., Dataset])


@dataclass(frozen=True)
class Source(Registered):
    """A loader and the name that it is found by."""

    no_options: ClassVar = ("path",)
    same_everywhere: bool = False  # whether its name says what the data are; else where they are is part of that
    fingerprint: Callable[[Path], str] | None = None  # of a folder whose content says what the data are
    version: int = 1  # counted up when it loads other data: results are kept by it
    outline: Outline | Callable[[Path | None], Outline] | None = None  # what a report may say without the data

    def __post_init__(self) -> None:
        if "path" not in {parameter.name for parameter in self.parameters()}:
            raise InputError(f"data set {self.name!r}: its loader must take path")


DATASETS: Registry[Source] = Registry("data set", "activeprune.data", Source, repair_torchvision)


def dataset(
    name: str,
    *,
    same_everywhere: bool = False,
    fingerprint: Callable[[Path], str] | None = None,
    version: int = 1,
    outline: Outline | Callable[[Path | None], Outline] | None = None,
) -> Callable[[Loader], Loader]:
    """Registers a loader under `name`.

    Results are kept by what they were computed from: the name alone for data that are `same_everywhere`, what
    `fingerprint(path)` returns for a folder that is known by its content, else the name and the path; and `version`,
    to be counted up when the loader's code changes what it loads. `outline` (or what it returns for a path) tells the
    shape of an image and the number of classes, so that a report can count multiply-adds where the images are not.
    """
    return DATASETS.register(
        name, same_everywhere=same_everywhere, fingerprint=fingerprint, version=version, outline=outline
    )


def load(name: str, path: Path | str | None = None, **options: Any) -> Dataset:
    """A data set by name; `path` is the folder where its files are, if they are not where they are looked for.

    >>> digits = load("digits")
    >>> len(digits.train), len(digits.test), digits.train.shape
    (1438, 359, (1, 8, 8))
    """
    found = DATASETS.find(name)
    check_options(f"data set {name!r}", options, found.options)
    loaded = found.function(path=None if path is None else Path(path).expanduser(), **options)
    if not isinstance(loaded, Dataset):
        raise InputError(f"data set {name!r}: its loader must return a Dataset, not {type(loaded).__name__}")
    if isinstance(found.outline, Outline) and found.outline != (real := _outline_of(loaded)):
        raise InputError(f"data set {name!r} is registered with {found.outline}, and its loader returns {real}")
    return loaded


def outline(name: str, path: Path | None = None, **options: Any) -> Outline:
    """Shape of an image and number of classes; the data are loaded only where the registration does not tell.

    >>> outline("cifar100")
    Outline(shape=(3, 32, 32), classes=100)
    """
    known = DATASETS.find(name).outline
    if known is None:
        return _outline_of(load(name, path, **options))
    return known if isinstance(known, Outline) else known(path)


def _outline_of(dataset: Dataset) -> Outline:
    if not isinstance(dataset.train, Images):
        raise InputError(f"data set {dataset.name!r}: files of any size have no shape in common")
    return Outline(dataset.train.shape, len(dataset.classes))
