"""Data sets, found by name; their splits; and the batches that a training sees.

A data set is a loader `load(path=None)` that returns a `Dataset`, registered by `@dataset("name")`; one's own needs no
registration: `load("package.module:loader")`.
"""

from . import cifar, digits  # noqa: F401  # they register themselves, as imagefolder does
from .augment import AUGMENTATIONS, Augmentation, Draws, augmented, draws
from .feeding import feed
from .feeds import Feed, Part
from .imagefolder import fingerprint
from .images import Dataset, Files, Images
from .in_memory import InMemory, Shelf, shown
from .normalise import IMAGENET, Normalisation, normalised, resized, scaled, statistics
from .sources import DATASETS, Source, dataset, find, load
from .splits import Split, split, stratified
from .streamed import Streamed

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "IMAGENET",
    "Augmentation",
    "Dataset",
    "Draws",
    "Feed",
    "Files",
    "Images",
    "InMemory",
    "Normalisation",
    "Part",
    "Shelf",
    "Source",
    "Split",
    "Streamed",
    "augmented",
    "dataset",
    "draws",
    "feed",
    "find",
    "fingerprint",
    "load",
    "normalised",
    "resized",
    "scaled",
    "shown",
    "split",
    "statistics",
    "stratified",
]
