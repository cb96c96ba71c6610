"""Images, files and data sets refuse what cannot be right when they are made."""

from pathlib import Path

import numpy as np
import pytest
import torch

import activeprune as ap
from activeprune.data import Dataset, Files, Images
from tests.data.makers import noise, paths

PIXELS, LABELS = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (PIXELS.float(), LABELS, r"pixels must be uint8 \[n, C, H, W\], not float32 \[4, 1, 2, 2\]"),
        (PIXELS[:, 0], LABELS, r"not uint8 \[4, 2, 2\]"),
        (PIXELS, LABELS.int(), r"labels must be int64 \[n\], not int32 \[4\]"),
        (PIXELS, LABELS[:, None], r"not int64 \[4, 1\]"),
        (PIXELS, LABELS[:3], "4 images and 3 labels"),
        (PIXELS[:0], LABELS[:0], "no pixels"),
        (PIXELS[..., :0], LABELS, "no pixels"),
    ],
)
def test_images_are_bytes_with_a_label_each(pixels: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        Images(pixels, labels)


def test_taking_images_keeps_pixels_and_labels_together() -> None:
    images = noise(10, 3)
    taken = images.take(torch.tensor([7, 2]))
    assert len(taken) == 2
    assert taken.shape == (3, 32, 32)
    assert torch.equal(taken.pixels[0], images.pixels[7])
    assert taken.labels.tolist() == [(7 * 7 + 3) % 3, (2 * 7 + 3) % 3]
    assert taken.to("cpu").labels.tolist() == taken.labels.tolist()


def test_files_are_names_in_one_array() -> None:
    files = Files(Path("root"), np.array(["a/ä.png".encode(), b"b/long name.jpg"]), torch.tensor([0, 1]))
    assert paths(files) == [Path("root/a/ä.png"), Path("root/b/long name.jpg")]
    assert paths(files.take(torch.tensor([1]))) == [Path("root/b/long name.jpg")]
    assert len(files.take(torch.tensor([1]))) == 1
    with pytest.raises(ap.InputError, match="2 images and 1 labels"):
        Files(Path("root"), files.names, torch.tensor([0]))
    with pytest.raises(ap.InputError, match="array of bytes"):
        Files(Path("root"), np.array(["a", "b"]), torch.tensor([0, 1]))  # type: ignore[arg-type]
    with pytest.raises(ap.InputError, match="no images"):
        files.take(torch.tensor([], dtype=torch.int64))


def test_a_data_set_is_of_one_piece() -> None:
    images = Images(PIXELS, LABELS)
    with pytest.raises(ap.InputError, match="labels of train run from 0 to 1, those of 1 classes from 0 to 0"):
        Dataset("mine", ("a",), images, images)
    with pytest.raises(ap.InputError, match="labels of test run from -1 to 1"):
        Dataset("mine", ("a", "b"), images, Images(PIXELS, torch.tensor([0, -1, 1, 1])))
    with pytest.raises(ap.InputError, match=r"\(1, 2, 2\) in train, \(3, 32, 32\) in test"):
        Dataset("mine", ("a", "b"), images, noise(2, 2))
    with pytest.raises(ap.InputError, match="both be Images or both be Files"):
        Dataset("mine", ("a", "b"), images, Files(Path(), np.array([b"x"]), torch.tensor([0])))
    with pytest.raises(ap.InputError, match="two classes are called 'a'"):
        Dataset("mine", ("a", "b", "a"), images, images)
