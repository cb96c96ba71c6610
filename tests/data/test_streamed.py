"""The feed of image files: decoded by any number of processes, always to the same batches."""

from pathlib import Path

import numpy as np
import pytest
import torch

import activeprune as ap
from activeprune.core.randomness import generator
from activeprune.data import IMAGENET, Batching, Normalisation, Split, Streamed, draws, feed, load, split
from activeprune.data.decode import central, random_resized
from tests.data.makers import normalised, paths, write_image

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # how torch starts its workers on Linux
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on a machine with one core
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, draw = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for part, count in (("train", 22), ("val", 5)):
        for number in range(count):
            size = (int(draw.integers(20, 40)), int(draw.integers(20, 40)), 3)
            pixels = draw.integers(0, 256, size, dtype=np.uint8)
            write_image(root / part / ("cat" if number % 2 else "dog") / f"{number:02}.png", pixels)
    return root


@pytest.fixture(scope="module")
def parts(folder: Path) -> Split:
    return split(load("imagefolder", folder), 0)


def same(one: object, two: object) -> bool:
    pairs = list(zip(one, two, strict=True))
    return bool(pairs) and all(torch.equal(a, b) for first, second in pairs for a, b in zip(first, second, strict=True))


def test_the_number_of_workers_changes_nothing(parts: Split) -> None:
    alone, helped = (
        feed(parts, 0, Batching(4, augment="resized_crop_flip", resolution=16), workers=workers) for workers in (0, 2)
    )
    assert same(alone.training(1), helped.training(1))
    assert same(alone.evaluation("test", 2), helped.evaluation("test", 2))
    assert same(alone.scoring(1, 3), helped.scoring(1, 3))


def test_each_image_is_cut_by_its_own_seed_and_mirrored_by_the_epochs_draws(parts: Split) -> None:
    ours = feed(parts, 7, Batching(4, augment="resized_crop_flip", resolution=16))
    assert isinstance(ours, Streamed)
    drawn, draw = draws(7, 3, 20), generator(7, "data", 3)
    torch.randperm(20, generator=draw), torch.randint(0, 9, (20, 2), generator=draw)
    torch.randint(0, 2, (20,), generator=draw)
    seeds = torch.randint(0, 2**63 - 1, (20,), generator=draw)
    position = 0
    for x, y in ours.training(3):
        for image, label in zip(x, y, strict=True):
            path = parts.train.path(int(drawn.order[position]))
            own = torch.Generator().manual_seed(int(seeds[position]))
            pixels = random_resized(path, 16, own, bool(drawn.flip[position]))
            assert torch.equal(image, normalised(pixels[None], IMAGENET.mean, IMAGENET.std)[0])
            assert parts.classes[label] == path.parent.name
            position += 1
    assert position == 20
    assert ours.steps == 5


def test_an_epoch_is_the_same_again_and_another_is_another(parts: Split) -> None:
    ours = feed(parts, 0, Batching(4, augment="resized_crop_flip", resolution=16))
    assert same(ours.training(0), ours.training(0))
    assert not same(ours.training(0), ours.training(1))


def test_without_augmentation_and_in_evaluation_the_centre_is_taken(parts: Split) -> None:
    ours = feed(parts, 0, Batching(6, resolution=16))
    order = draws(0, 0, 20).order
    x, _ = next(ours.training(0))
    for image, index in zip(x, order.tolist(), strict=False):
        expected = normalised(central(parts.train.path(index), 16)[None], IMAGENET.mean, IMAGENET.std)[0]
        assert torch.equal(image, expected)
    augmenting = feed(parts, 0, Batching(6, resolution=16, augment="resized_crop_flip"))
    for part in ("train", "validation", "test"):
        files = getattr(parts, part)
        x, y = (torch.cat(column) for column in zip(*augmenting.evaluation(part), strict=True))
        pixels = torch.stack([central(path, 16) for path in paths(files)])
        assert torch.equal(x, normalised(pixels, IMAGENET.mean, IMAGENET.std))
        assert torch.equal(y, files.labels)


def test_files_have_imagenets_size_and_normalisation_unless_told_otherwise(parts: Split) -> None:
    ours = feed(parts, 0, Batching(2))
    assert next(ours.training(0))[0].shape == (2, 3, 224, 224)
    assert (ours.normalisation, ours.channels, ours.classes) == (IMAGENET, 3, ("cat", "dog"))


def test_global_random_state_is_neither_read_nor_changed(parts: Split) -> None:
    ours = feed(parts, 0, Batching(4, augment="resized_crop_flip", resolution=16))
    before = torch.get_rng_state()
    list(ours.training(0))
    list(ours.evaluation("test"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_breaks_later_is_named_in_one_line(tmp_path: Path, workers: int) -> None:
    pixels = np.zeros((20, 20, 3), np.uint8)
    paths = [write_image(tmp_path / "train" / "cat" / f"{number}.png", pixels) for number in range(6)]
    write_image(tmp_path / "val" / "cat" / "0.png", pixels)
    parts = split(load("imagefolder", tmp_path), 0)
    for path in paths:
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ap.InputError, match=rf"^{tmp_path}/train/cat/\d.png cannot be decoded: ") as caught:
        list(feed(parts, 0, Batching(2, resolution=16), workers=workers).training(0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("augment", ["crop", "crop_flip"])
def test_shifts_are_for_small_images(parts: Split, augment: str) -> None:
    with pytest.raises(ap.InputError, match=f"{augment!r} is for small images: here 'resized_crop_flip' is possible"):
        feed(parts, 0, Batching(4, augment=augment))


def test_a_split_of_files_is_refused_where_it_cannot_be_fed(parts: Split) -> None:
    with pytest.raises(ap.InputError, match="batch = 21 of 20 training images"):
        feed(parts, 0, Batching(21))
    with pytest.raises(ap.InputError, match="normalisation of 1 channels: image files have 3"):
        feed(parts, 0, Batching(2, normalisation=Normalisation((0.5,), (0.5,))))
