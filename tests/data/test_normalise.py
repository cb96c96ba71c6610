"""Normalisation against numpy in double precision, and sizes."""

import numpy as np
import pytest
import torch

import activeprune as ap
from activeprune.data import Images, Normalisation, resized, statistics
from tests.data.makers import noise, normalised


def test_statistics_are_numpys_over_images_rows_and_columns() -> None:
    images = noise(37, 5, (3, 7, 11))
    found = statistics(images)
    pixels = images.pixels.numpy().astype(np.float64) / 255
    assert np.allclose(found.mean, pixels.mean((0, 2, 3)), rtol=1e-14)
    assert np.allclose(found.std, pixels.std((0, 2, 3)), rtol=1e-13)


def test_statistics_of_many_nearly_equal_pixels_lose_nothing() -> None:
    pixels = torch.full((1000, 1, 32, 32), 255, dtype=torch.uint8)
    pixels[0, 0, 0, 0] = 254
    n = 1000 * 32 * 32
    found = statistics(Images(pixels, torch.zeros(1000, dtype=torch.int64)))
    assert found.std[0] == pytest.approx(np.sqrt(n - 1) / n / 255, rel=1e-14)  # variance of one among n: (n - 1) / n²


def test_a_constant_channel_is_not_divided_by_zero() -> None:
    images = Images(torch.full((3, 2, 4, 4), 51, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64))
    assert statistics(images) == Normalisation((0.2, 0.2), (1.0, 1.0))
    assert normalised(images.pixels, (0.2, 0.2), (1.0, 1.0)).abs().max() < 1e-7


def test_normalised_is_the_formula() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(2, 3, 16, 16)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    found = normalised(pixels, mean, std)
    exact = (pixels.numpy() / 255.0 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    assert found.dtype == torch.float32
    assert np.abs(found.numpy() - exact).max() < 1e-6  # values up to 2.7: a few units in the last place of float32


def test_normalised_by_their_own_statistics_images_have_mean_0_and_std_1() -> None:
    images = noise(64, 5)
    own = statistics(images)
    x = normalised(images.pixels, own.mean, own.std).double()
    assert x.mean((0, 2, 3)).abs().max() < 1e-6
    assert (x.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), (0.5, 0.5), "1 means and 2 standard deviations"),
        ((), (), "0 means"),
        ((0.5,), (0.0,), "must be above 0"),
        ((0.5,), (float("nan"),), "must be above 0"),
    ],
)
def test_a_normalisation_that_cannot_be_is_refused(
    mean: tuple[float, ...], std: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ap.InputError, match=message):
        Normalisation(mean, std)


def test_resizing_keeps_what_fits_and_constants_as_they_are() -> None:
    x = torch.randn(2, 3, 32, 32)
    assert resized(x, 32) is x
    assert resized(x, 48).shape == (2, 3, 48, 48)
    flat = torch.full((1, 1, 8, 8), 0.7)
    assert torch.allclose(resized(flat, 20), torch.full((1, 1, 20, 20), 0.7))
    assert resized(torch.zeros(1, 1, 8, 6), 8).shape == (1, 1, 8, 8)


def test_halving_is_antialiased() -> None:
    """A chequerboard has no business at half the resolution: grey is left, not one of its colours."""
    board = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(16, 16)[None, None]
    assert (resized(board, 16) - 0.5).abs()[..., 2:-2, 2:-2].max() < 0.05
