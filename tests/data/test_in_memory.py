"""The feed of small images: a function of seed and epoch, whole batches for training, everything for evaluation."""

import numpy as np
import pytest
import torch

import activeprune as ap
from activeprune.core.randomness import generator
from activeprune.data import (
    AUGMENTATIONS,
    Batching,
    Dataset,
    Feed,
    InMemory,
    Normalisation,
    Split,
    augmented,
    draws,
    feed,
    resized,
    statistics,
)
from tests.data.makers import noise, normalised

WHOLE = Dataset("noise", ("a", "b", "c"), noise(59, 3), noise(11, 3, seed=2))
PARTS = Split(WHOLE, {"train": torch.arange(50), "validation": torch.arange(50, 59), "test": torch.arange(59, 70)})


def all_of(batches: object) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = zip(*batches, strict=True)
    return torch.cat(x), torch.cat(y)


def test_a_batch_is_indexed_augmented_normalised_by_the_epochs_draws() -> None:
    ours = feed(PARTS, 5, Batching(8, augment="crop_flip"))
    own, drawn = statistics(PARTS.train), draws(5, 2, 50)
    for step, (x, y) in enumerate(ours.training(2)):
        rows = slice(8 * step, 8 * step + 8)
        chosen = drawn.order[rows]
        pixels = augmented(PARTS.train.pixels[chosen], drawn.shift[rows], drawn.flip[rows])
        assert torch.equal(x, normalised(pixels, own.mean, own.std))
        assert torch.equal(y, PARTS.train.labels[chosen])
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert step + 1 == ours.steps == 6  # 50 = 6 · 8 + 2


def test_a_feed_says_what_it_is() -> None:
    ours = feed(PARTS, 0, Batching(8))
    assert isinstance(ours, Feed)
    assert isinstance(ours, InMemory)
    assert (ours.classes, ours.channels) == (("a", "b", "c"), 3)
    assert ours.normalisation == statistics(PARTS.train)
    given = Normalisation((0.5,) * 3, (0.25,) * 3)
    assert feed(PARTS, 0, Batching(8, normalisation=given)).normalisation == given


def test_augmentations_share_order_and_shifts() -> None:
    none, crop, crop_flip = (list(feed(PARTS, 0, Batching(8, augment=name)).training(0)) for name in AUGMENTATIONS[:3])
    drawn, plain = draws(0, 0, 50), PARTS.train.pixels
    own = statistics(PARTS.train)
    for step in range(6):
        rows = slice(8 * step, 8 * step + 8)
        assert torch.equal(none[step][1], crop[step][1])
        assert torch.equal(none[step][1], crop_flip[step][1])
        assert torch.equal(none[step][0], normalised(plain[drawn.order[rows]], own.mean, own.std))
        still = ~drawn.flip[rows]
        assert torch.equal(crop[step][0][still], crop_flip[step][0][still])
        assert torch.equal(crop[step][0].flip(3)[~still], crop_flip[step][0][~still])


def test_an_epoch_is_the_same_again_and_another_is_another() -> None:
    ours = feed(PARTS, 0, Batching(8, augment="crop_flip"))
    x, y = all_of(ours.training(1))
    torch.rand(3)
    for again in (ours.training(1), feed(PARTS, 0, Batching(8, augment="crop_flip")).training(1)):
        x2, y2 = all_of(again)
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
    assert not torch.equal(x, all_of(ours.training(2))[0])
    assert not torch.equal(x, all_of(feed(PARTS, 1, Batching(8, augment="crop_flip")).training(1))[0])


def test_an_epoch_shows_every_image_at_most_once() -> None:
    x, _ = all_of(feed(PARTS, 0, Batching(8)).training(0))
    assert len({tuple(image) for image in x.flatten(1)[:, :50].tolist()}) == 48


def test_scoring_batches_are_plain_training_images_of_seed_and_cycle() -> None:
    ours = feed(PARTS, 3, Batching(8, augment="crop_flip"))
    images, _ = all_of(ours.evaluation("train"))
    known = {tuple(image): number for number, image in enumerate(images.flatten(1).tolist())}
    x, y = all_of(ours.scoring(cycle=2, count=4))
    chosen = [known[tuple(image)] for image in x.flatten(1).tolist()]  # a KeyError: an image that was augmented
    assert len(set(chosen)) == 32
    assert torch.equal(y, PARTS.train.labels[chosen])
    order = torch.randperm(len(PARTS.train), generator=generator(3, "score", 2))
    assert chosen == order[:32].tolist()
    assert len(list(ours.scoring(cycle=2, count=1000))) == ours.steps


@pytest.mark.parametrize("part", ["train", "validation", "test"])
@pytest.mark.parametrize("batch", [None, 1, 4, 1000])
def test_evaluation_is_complete_in_order_and_never_augmented(part: str, batch: int | None) -> None:
    ours = feed(PARTS, 0, Batching(8, augment="crop_flip"))
    batches = list(ours.evaluation(part, batch))
    assert all(len(y) == (batch or 8) for _, y in batches[:-1])
    x, y = all_of(batches)
    images, own = getattr(PARTS, part), statistics(PARTS.train)
    exact = (images.pixels.numpy() / 255.0 - np.reshape(own.mean, (3, 1, 1))) / np.reshape(own.std, (3, 1, 1))
    assert np.abs(x.numpy() - exact).max() < 1e-5
    assert torch.equal(y, images.labels)


def test_a_resolution_scales_what_would_have_come() -> None:
    plain, large = (feed(PARTS, 0, Batching(8, augment="crop", resolution=size)) for size in (None, 40))
    for (x, _), (larger, _) in zip(plain.training(0), large.training(0), strict=True):
        assert torch.equal(larger, resized(x, 40))
    assert next(large.evaluation("test"))[0].shape == (8, 3, 40, 40)


def test_global_random_state_is_neither_read_nor_changed() -> None:
    before = torch.get_rng_state()
    list(feed(PARTS, 0, Batching(8, augment="crop_flip")).training(0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 51}, "batch = 51 of 50 training images: at most 50 are possible"),
        ({"batch": 0}, "batch = 0: at least 1"),
        ({"augment": "crop-flip"}, "unknown augmentation 'crop-flip': did you mean 'crop_flip'"),
        ({"augment": "resized_crop_flip"}, "is for folders of image files: here 'crop_flip' is possible"),
        ({"resolution": 0}, "resolution = 0: at least 1"),
        ({"normalisation": Normalisation((0.5,), (0.5,))}, "normalisation of 1 channels: the images have 3"),
    ],
)
def test_what_cannot_be_fed_is_refused_at_once(options: dict, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        feed(PARTS, 0, Batching(**{"batch": 8} | options))


def test_fewer_workers_than_none_are_refused() -> None:
    with pytest.raises(ap.InputError, match="workers = -1: at least 0"):
        feed(PARTS, 0, Batching(8), workers=-1)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda ours: ours.scoring(0, 0), "count = 0"),
        (lambda ours: ours.scoring(-1, 1), "cycle = -1"),
        (lambda ours: ours.training(-1), "epoch = -1"),
        (lambda ours: ours.evaluation("tests"), "unknown part 'tests': did you mean 'test'"),
        (lambda ours: ours.evaluation("test", 0), "batch = 0"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_first_batch(ask: object, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        ask(feed(PARTS, 0, Batching(8)))
