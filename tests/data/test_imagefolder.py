"""Folders of image files: what is found in them, what is refused, and their identity."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import activeprune as ap
from activeprune.data import Files, fingerprint, load
from tests.data.makers import paths, write_image

GREY = np.full((6, 5, 3), 128, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "images"
    for name in ("train/dog/b.JPEG", "train/dog/deep/er/a.png", "train/cat/c.webp", "train/cat/d.bmp", "val/dog/e.jpg"):
        write_image(root / name, GREY)
    (root / "train" / "cat" / "notes.txt").write_text("no image")
    (root / "train" / "cat" / ".hidden.png").write_bytes(b"")
    (root / "train" / ".cache").mkdir()
    return root


def names(files: Files) -> list[str]:
    return [str(path.relative_to(files.root)) for path in paths(files)]


def test_files_come_by_class_and_name_with_labels_in_the_order_of_train(folder: Path) -> None:
    found = load("imagefolder", folder)
    assert found.classes == ("cat", "dog")
    assert names(found.train) == ["train/cat/c.webp", "train/cat/d.bmp", "train/dog/b.JPEG", "train/dog/deep/er/a.png"]
    assert found.train.labels.tolist() == [0, 0, 1, 1]
    assert names(found.test) == ["val/dog/e.jpg"]
    assert found.test.labels.tolist() == [1]


@pytest.mark.parametrize("part", ["test", "validation"])
def test_the_held_out_part_has_three_names(folder: Path, part: str) -> None:
    (folder / "val").rename(folder / part)
    assert names(load("imagefolder", folder).test) == [f"{part}/dog/e.jpg"]


def test_only_one_of_them_may_hold_classes(folder: Path) -> None:
    (folder / "test").mkdir()
    (folder / "test" / "unlabelled.jpg").write_bytes(b"?")  # ImageNet's own test images have no classes
    assert names(load("imagefolder", folder).test) == ["val/dog/e.jpg"]
    (folder / "test" / "dog").mkdir()
    with pytest.raises(ap.InputError, match=r"in one of val/, validation/ and test/: there are 'val', 'test'"):
        load("imagefolder", folder)
    shutil.rmtree(folder / "test")
    shutil.rmtree(folder / "val")
    with pytest.raises(ap.InputError, match="there is none of them"):
        load("imagefolder", folder)


def test_what_is_no_folder_of_images_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ap.InputError, match=f"{tmp_path / 'nowhere'} is no folder of images: train/<class>"):
        load("imagefolder", tmp_path / "nowhere")
    (folder / "train" / "bird").mkdir()
    with pytest.raises(ap.InputError, match="no images of class 'bird' in"):
        load("imagefolder", folder)
    (folder / "train" / "bird").rmdir()
    (folder / "val" / "dogs").mkdir()
    with pytest.raises(ap.InputError, match=f"folder {folder / 'val' / 'dogs'} is no class .* did you mean 'dog'"):
        load("imagefolder", folder)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", r"is empty \(0 bytes\)"), (b"\xff\xd8 no picture", "cannot be decoded")]
)
def test_an_empty_file_and_a_bad_header_are_found_before_training(folder: Path, content: bytes, message: str) -> None:
    path = folder / "train" / "dog" / "b.JPEG"
    path.write_bytes(content)
    with pytest.raises(ap.InputError, match=f"{path} {message}"):
        load("imagefolder", folder)


def test_a_truncated_and_a_16_bit_image_are_found_before_training(folder: Path) -> None:
    path = folder / "train" / "dog" / "b.JPEG"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ap.InputError, match=f"{path} cannot be decoded"):
        load("imagefolder", folder)
    path.unlink()
    deep = path.with_name("deep.png")
    Image.fromarray(np.full((9, 9), 1000, np.uint16)).save(deep)
    with pytest.raises(ap.InputError, match=f"{deep} cannot be decoded: ValueError: mode I;16 has more than 8 bits"):
        load("imagefolder", folder)


def test_names_that_are_not_utf_8_are_found(folder: Path) -> None:
    odd = os.path.join(os.fsencode(folder), b"train/dog/\xff.png")
    shutil.copy(folder / "train" / "dog" / "deep" / "er" / "a.png", odd)
    assert os.fsencode(paths(load("imagefolder", folder).train)[-1]) == odd


def test_the_fingerprint_is_of_names_and_sizes_not_of_place_and_time(folder: Path, tmp_path: Path) -> None:
    before = fingerprint(folder)
    assert len(before) == 64
    shutil.copytree(folder, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "val" / "dog" / "e.jpg", ns=(1, 1))
    (tmp_path / "copy" / "train" / "cat" / "notes.txt").unlink()
    assert fingerprint(tmp_path / "copy") == fingerprint(str(folder)) == before
    (tmp_path / "copy" / "train" / "cat" / "c.webp").rename(tmp_path / "copy" / "train" / "cat" / "c2.webp")
    renamed = fingerprint(tmp_path / "copy")
    (folder / "train" / "cat" / "d.bmp").write_bytes((folder / "train" / "cat" / "d.bmp").read_bytes() + b"\0")
    assert len({before, renamed, fingerprint(folder)}) == 3


def test_a_folder_that_was_found_whole_is_not_decoded_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from activeprune.data import imagefolder

    seen: list[Path] = []
    monkeypatch.setattr(imagefolder, "_decode", seen.append)
    load("imagefolder", folder)
    load("imagefolder", folder)
    assert sorted(seen) == sorted([*paths(load("imagefolder", folder).train), *paths(load("imagefolder", folder).test)])
