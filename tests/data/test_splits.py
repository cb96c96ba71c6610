"""Splits: every class in proportion, by the seed alone, and nothing twice."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.core.randomness import generator
from activeprune.data import Dataset, Images, load, split, stratified


def numbered(labels: list[int]) -> Dataset:
    """Images that carry their own number in their pixels: 256 · first + second."""
    count = torch.arange(len(labels))
    pixels = torch.stack([count // 256, count % 256], 1).to(torch.uint8)[:, None, None, :]
    classes = tuple(f"class {label}" for label in range(max(labels) + 1))
    return Dataset("numbered", classes, Images(pixels, torch.tensor(labels)), Images(pixels, torch.tensor(labels)))


def numbers(images: Images) -> list[int]:
    pixels = images.pixels.long()[:, 0, 0]
    return (256 * pixels[:, 0] + pixels[:, 1]).tolist()


def shares(sizes: list[int], count: int) -> list[int]:
    """Largest remainder in fractions: the floor of each fair share, and one more where the remainder is largest."""
    fair = [Fraction(size * count, sum(sizes)) for size in sizes]
    floors = [int(share) for share in fair]
    ranked = sorted(range(len(sizes)), key=lambda label: (floors[label] - fair[label], label))
    for label in ranked[: count - sum(floors)]:
        floors[label] += 1
    return floors


@given(st.lists(st.integers(0, 5), min_size=2, max_size=60), st.data(), st.integers(0, 3))
def test_each_part_has_its_share_of_each_class_in_order_and_nothing_twice(
    labels: list[int], data: st.DataObject, seed: int
) -> None:
    held_out = data.draw(st.integers(1, len(labels) - 1))
    parts = split(numbered(labels), seed, validation=held_out)
    trained, validated = numbers(parts.train), numbers(parts.validation)
    assert trained == sorted(trained)
    assert validated == sorted(validated)
    assert sorted(trained + validated) == list(range(len(labels)))
    assert numbers(parts.test) == list(range(len(labels)))
    sizes = torch.tensor(labels).bincount().tolist()
    assert parts.validation.labels.bincount(minlength=len(sizes)).tolist() == shares(sizes, held_out)
    assert all(labels[number] == label for number, label in zip(validated, parts.validation.labels, strict=True))


def test_ties_go_to_the_lower_class() -> None:
    chosen = stratified(torch.tensor([2, 1, 0, 2, 1, 0]), 1, generator(0, "split", 0))
    assert chosen.tolist() in ([2], [5])


def test_the_seed_alone_draws_the_validation_images() -> None:
    digits = load("digits")
    same, again, other = (numbers_of(split(digits, seed).validation) for seed in (1, 1, 2))
    assert same == again
    assert same != other
    assert numbers_of(split(digits, 1).test) == numbers_of(split(digits, 2).test)


def numbers_of(images: Images) -> list[list[int]]:
    return images.pixels.flatten(1).tolist()


def test_a_tenth_is_held_out_unless_said_otherwise() -> None:
    labels = [0, 1] * 500
    assert len(split(numbered(labels), 0).validation) == 100
    assert len(split(numbered(labels[:9]), 0).validation) == 1
    parts = split(numbered(labels), 0, validation=1, limit=300)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (299, 1, 300)


def test_at_most_fifty_thousand_are_held_out() -> None:
    labels = torch.zeros(600_000, dtype=torch.int64)
    images = Images(torch.zeros(600_000, 1, 1, 1, dtype=torch.uint8), labels)
    assert len(split(Dataset("many", ("a",), images, images), 0).validation) == 50_000


def test_a_limit_chooses_the_same_images_for_every_seed_before_any_are_held_out() -> None:
    data = numbered([0, 1, 2] * 100)
    one, two = (split(data, seed, limit=60) for seed in (0, 1))
    pool = sorted(numbers(one.train) + numbers(one.validation))
    assert pool == sorted(numbers(two.train) + numbers(two.validation))
    assert numbers(one.validation) != numbers(two.validation)
    assert len(one.validation) == 6
    assert one.test.labels.bincount().tolist() == [20, 20, 20]
    assert numbers(one.test) == numbers(two.test)


def test_a_smaller_limit_is_a_subset_of_a_larger_one() -> None:
    data = numbered([0, 1, 2] * 100)
    pools = [set(numbers(split(data, 0, limit=limit).test)) for limit in (2, 10, 61, 150, 300)]
    assert [len(pool) for pool in pools] == [2, 10, 61, 150, 300]
    assert all(small < large for small, large in pairwise(pools))


def test_a_limit_beyond_what_is_there_changes_nothing() -> None:
    data = numbered([0, 1] * 20)
    assert numbers(split(data, 3, limit=10_000).train) == numbers(split(data, 3).train)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 0}, "validation = 0: at least 1 is needed"),
        ({"validation": -5}, "validation = -5"),
        ({"validation": 0.1}, "validation = 0.1: a whole number is needed"),
        ({"validation": 10}, "validation = 10 of 10 training images: none would be left"),
        ({"validation": 4, "limit": 4}, "validation = 4 of 4 training images"),
        ({"limit": 1}, "limit = 1: at least 2 is needed"),
    ],
)
def test_no_part_may_be_empty(options: dict, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        split(numbered([0, 1] * 5), 0, **options)


def test_one_image_cannot_be_split() -> None:
    with pytest.raises(ap.InputError, match="has 1 training image"):
        split(numbered([0]), 0)


def test_the_same_images_are_chosen_for_ever() -> None:
    """Recorded: another choice would orphan every result."""
    parts = split(numbered([0, 1, 2, 3] * 10), seed=3, validation=4, limit=20)
    assert numbers(parts.validation) == [4, 6, 13, 27]
    assert numbers(parts.test) == [0, 1, 2, 4, 6, 7, 8, 9, 11, 13, 14, 19, 20, 24, 25, 27, 30, 31, 33, 34]
