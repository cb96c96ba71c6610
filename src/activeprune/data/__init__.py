"""Data sets, found by name; their splits; and the batches that a training sees.

A data set is a loader `load(path=None)` that returns a `Dataset`, registered by `@dataset("name")`; one's own needs no
registration: `load("package.module:loader")`. Every file of this folder is imported here, so a new data set is a new
function in one file and nothing else.
"""

from ..core.registry import import_files_of
from .augment import AUGMENTATIONS, Augmentation, augmented, draws
from .batching import Batching
from .feeding import feed
from .feeds import Feed, Part
from .imagefolder import fingerprint
from .images import Dataset, Files, Images, Outline
from .in_memory import InMemory, Shelf, shown
from .normalise import IMAGENET, Normalisation, resized, scaled, statistics
from .sources import DATASETS, dataset, load, outline
from .splits import Split, split, stratified
from .streamed import Streamed

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "IMAGENET",
    "Augmentation",
    "Batching",
    "Dataset",
    "Feed",
    "Files",
    "Images",
    "InMemory",
    "Normalisation",
    "Outline",
    "Part",
    "Shelf",
    "Split",
    "Streamed",
    "augmented",
    "dataset",
    "draws",
    "feed",
    "fingerprint",
    "load",
    "outline",
    "resized",
    "scaled",
    "shown",
    "split",
    "statistics",
    "stratified",
]

import_files_of(__name__, __path__)
