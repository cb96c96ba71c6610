"""CIFAR as it was released: addresses, checksums, classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Release:
    """One official archive: the files in its folder, and how they are to be read.

    `files` gives the MD5 of each file, `train` and `test` the number of images in each, in the official order.
    """

    address: str
    md5: str
    folder: str
    files: Mapping[str, str]
    train: Mapping[str, int]
    test: Mapping[str, int]
    meta: str
    label_key: str
    class_key: str
    classes: tuple[str, ...]


# In the order of their labels.
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR10 = Release(
    address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    folder="cifar-10-batches-py",
    files=MappingProxyType(
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
        }
    ),
    train=MappingProxyType({f"data_batch_{number}": 10_000 for number in range(1, 6)}),
    test=MappingProxyType({"test_batch": 10_000}),
    meta="batches.meta",
    label_key="labels",
    class_key="label_names",
    classes=tuple(CIFAR10_CLASSES.split()),
)

CIFAR100 = Release(
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    folder="cifar-100-python",
    files=MappingProxyType(
        {
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "meta": "7973b15100ade9c7d40fb424638fde48",
        }
    ),
    train=MappingProxyType({"train": 50_000}),
    test=MappingProxyType({"test": 10_000}),
    meta="meta",
    label_key="fine_labels",
    class_key="fine_label_names",
    classes=tuple(CIFAR100_CLASSES.split()),
)
