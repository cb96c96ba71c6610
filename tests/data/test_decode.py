"""Crops of image files are torchvision's, to the byte, and every kind of image becomes RGB."""

import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import activeprune as ap
from activeprune import extras
from activeprune.data.decode import central, random_box, random_resized
from tests.data.makers import write_image

SIZES = [(40, 60), (60, 40), (50, 50), (7, 90), (90, 7), (3, 3)]  # height, width


def picture(path: Path, height: int, width: int) -> Image.Image:
    """Noise, and a file of it."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    write_image(path, pixels)
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def transforms() -> object:
    if not extras.present("torchvision"):
        pytest.skip("torchvision is what this is compared with")
    return extras.need("torchvision.transforms")


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_the_central_crop_is_torchvisions(height: int, width: int, tmp_path: Path, transforms: object) -> None:
    path = tmp_path / "x.png"
    image = picture(path, height, width)
    for resolution in (28, 35):
        both = transforms.Compose([transforms.Resize(round(resolution / 0.875)), transforms.CenterCrop(resolution)])
        expected = np.array(both(image))
        assert np.array_equal(central(path, resolution).permute(1, 2, 0), expected)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_random_parts_are_torchvisions(height: int, width: int, tmp_path: Path, transforms: object) -> None:
    path = tmp_path / "x.png"
    image = picture(path, height, width)
    crop = transforms.RandomResizedCrop(20)
    for seed in range(20):
        torch.manual_seed(seed)
        box = crop.get_params(image, crop.scale, crop.ratio)
        assert random_box(height, width, torch.Generator().manual_seed(seed)) == tuple(box)
        torch.manual_seed(seed)
        expected = np.array(crop(image))
        for flip in (False, True):
            found = random_resized(path, 20, torch.Generator().manual_seed(seed), flip)
            assert np.array_equal(found.permute(1, 2, 0), expected[:, ::-1] if flip else expected)


def test_random_parts_lie_inside_and_have_the_right_area_and_shape() -> None:
    draw = torch.Generator().manual_seed(0)
    for _ in range(500):
        top, left, height, width = random_box(200, 300, draw)
        assert 0 <= top <= 200 - height
        assert 0 <= left <= 300 - width
        assert 0.075 < height * width / (200 * 300) <= 1
        assert 0.74 < width / height < 1.35


def test_where_no_part_fits_the_middle_is_taken() -> None:
    assert random_box(10, 1000, torch.Generator().manual_seed(0)) == (0, 493, 10, 13)
    assert random_box(1000, 9, torch.Generator().manual_seed(0)) == (494, 0, 12, 9)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "CMYK"])
def test_every_kind_of_image_becomes_rgb(mode: str, tmp_path: Path) -> None:
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    image = Image.fromarray(np.full((16, 16, 3), 255, np.uint8)).convert(mode)
    image.save(path)
    found = central(path, 14)
    assert (found.shape, found.dtype) == ((3, 14, 14), torch.uint8)
    assert found.min() >= 250  # white in every mode


def test_a_cameras_orientation_mark_is_ignored(tmp_path: Path) -> None:
    image = Image.fromarray(np.repeat(np.arange(16, dtype=np.uint8) * 16, 16).reshape(16, 16)).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "turned.png", exif=exif)
    image.save(tmp_path / "plain.png")
    assert torch.equal(central(tmp_path / "turned.png", 14), central(tmp_path / "plain.png", 14))


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "bmp"])
def test_a_truncated_file_is_named(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    picture(path, 40, 40)
    content = path.read_bytes()
    for length in (10, len(content) // 2):
        path.write_bytes(content[:length])
        with pytest.raises(ap.InputError, match=f"{path} cannot be decoded"):
            central(path, 14)
    path.unlink()
    with pytest.raises(ap.InputError, match=f"{path} is missing"):
        central(path, 14)


def test_a_line_of_pixels_is_not_scaled_to_a_field_of_them(tmp_path: Path) -> None:
    path = tmp_path / "line.png"
    Image.new("RGB", (1, 100_000)).save(path)
    with pytest.raises(ap.InputError, match=r"1x100000 pixels are too narrow: scaled, they would be 256x25600000"):
        central(path, 224)


def test_an_image_that_declares_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    Image.new("RGB", (1, 1)).save(path)
    content = bytearray(path.read_bytes())
    content[16:24] = (60_000).to_bytes(4, "big") * 2  # width and height, 10 gigabytes
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)
    with pytest.raises(ap.InputError, match=r"bomb\.png cannot be decoded: DecompressionBombError"):
        central(path, 224)
