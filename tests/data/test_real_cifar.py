"""The real CIFAR, from its official files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from activeprune.data import load, split, statistics

pytestmark = pytest.mark.slow

# Published: channel means and standard deviations of the training images; the labels that the first files start with.
KNOWN = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), "frog truck truck deer automobile", 1000),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762), "cattle dinosaur apple boy aquarium_fish", 100),
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_counts_balance_first_labels_and_channel_means(name: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(f"real_{name}")
    mean, std, first, per_class = KNOWN[name]
    data = load(name, folder)
    assert data.train.shape == (3, 32, 32)
    assert data.train.labels.bincount().tolist() == [5 * per_class] * len(data.classes)
    assert data.test.labels.bincount().tolist() == [per_class] * len(data.classes)
    assert [data.classes[label] for label in data.train.labels[:5]] == first.split()
    found = statistics(data.train)
    assert np.allclose(found.mean, mean, atol=5e-5)
    assert np.allclose(found.std, std, atol=5e-5)
    again = load(name, folder / next(folder.iterdir()).name)  # the folder itself, and decoded before
    assert torch.equal(again.test.pixels, data.test.pixels)


def test_cifar10_is_split_into_45_5_and_10_thousand(real_cifar10: Path) -> None:
    parts = split(load("cifar10", real_cifar10), seed=0)
    assert parts.train.labels.bincount().tolist() == [4500] * 10
    assert parts.validation.labels.bincount().tolist() == [500] * 10
    assert parts.test.labels.bincount().tolist() == [1000] * 10
