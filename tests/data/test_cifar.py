"""CIFAR from the official files and from trees of images: the same tensors, and errors that name the file."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import activeprune as ap
from activeprune.data import Images, cifar, load
from activeprune.data.releases import CIFAR10, CIFAR100, Release
from tests.data.makers import RELEASES, noise, python2_pickle, python3_pickle, write_image, write_official, write_tree

TRAIN, TEST = noise(40, 10), noise(11, 10, seed=1)


def use(monkeypatch: pytest.MonkeyPatch, release: Release) -> None:
    monkeypatch.setattr(cifar, "CIFAR10" if len(release.classes) == 10 else "CIFAR100", release)


@pytest.fixture
def official(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / CIFAR10.folder
    use(monkeypatch, write_official(folder, CIFAR10, TRAIN, TEST))
    return folder


@pytest.mark.parametrize("dumps", [python2_pickle, python3_pickle])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_official_files_give_the_images_in_their_order(
    name: str, dumps: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = RELEASES[name]
    train, test = (noise(n, len(release.classes), seed=n) for n in (40, 11))
    use(monkeypatch, write_official(tmp_path / release.folder, release, train, test, dumps))
    for path in (tmp_path, tmp_path / release.folder, str(tmp_path)):
        found = load(name, path)
        assert found.classes == release.classes
        assert torch.equal(found.train.pixels, train.pixels)
        assert torch.equal(found.train.labels, train.labels)
        assert torch.equal(found.test.pixels, test.pixels)
        assert torch.equal(found.test.labels, test.labels)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_tree_of_the_same_images_gives_the_same_by_class(name: str, tmp_path: Path) -> None:
    classes = RELEASES[name].classes
    train, test = (noise(n, len(classes), seed=n) for n in (40, 11))
    write_tree(tmp_path, "train", train, classes)
    write_tree(tmp_path, "test", test, classes)
    found = load(name, tmp_path)
    for ours, images in ((found.train, train), (found.test, test)):
        by_class = images.take(images.labels.argsort(stable=True))
        assert torch.equal(ours.pixels, by_class.pixels)
        assert torch.equal(ours.labels, by_class.labels)


def test_a_tree_of_a_few_classes_keeps_the_official_numbers(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write_image(tmp_path / part / "truck" / "1.PNG", np.zeros((32, 32, 3), np.uint8))
        write_image(tmp_path / part / "bird" / "deeper" / "1.png", np.zeros((32, 32, 3), np.uint8))
        (tmp_path / part / "bird" / ".hidden.png").write_bytes(b"")
        (tmp_path / part / "bird" / "notes.txt").write_bytes(b"")
        (tmp_path / part / ".hidden").mkdir()
    assert load("cifar10", tmp_path).train.labels.tolist() == [2, 9]


def test_where_there_is_nothing_it_says_what_is_looked_for(tmp_path: Path) -> None:
    expected = f"no cifar10 in {tmp_path}: it must hold the folder cifar-10-batches-py, or train/<class>"
    with pytest.raises(ap.InputError, match=expected):
        load("cifar10", tmp_path)


def test_a_missing_file_is_named(official: Path) -> None:
    (official / "data_batch_3").unlink()
    with pytest.raises(ap.InputError, match=f"{official / 'data_batch_3'} is missing: download the data again"):
        load("cifar10", official)


@pytest.mark.parametrize("name", ["data_batch_2", "test_batch", "batches.meta"])
def test_a_changed_truncated_or_empty_file_is_named(official: Path, name: str) -> None:
    content = (official / name).read_bytes()
    for damaged in (content[:-1], content[:-1] + b"?", content + b"."):
        (official / name).write_bytes(damaged)
        with pytest.raises(ap.InputError, match=f"{official / name} is not the official file: its MD5 is"):
            load("cifar10", official)
    (official / name).write_bytes(b"")
    with pytest.raises(ap.InputError, match=f"{official / name} is empty"):
        load("cifar10", official)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_batch_2": {"labels": [1, 2]}}, "data_batch_2: 8 images and 2 labels where 8 of each belong"),
        ({"data_batch_2": {"data": np.zeros((7, 3072), np.uint8)}}, "data_batch_2: 7 images and 8 labels"),
        ({"data_batch_2": {"data": np.zeros((8, 3000), np.uint8)}}, r"data_batch_2: \(8, 3000\) is no array of images"),
        ({"data_batch_2": {"data": "nothing"}}, "data_batch_2: b'nothing' is no array of images"),
        ({"data_batch_2": {"labels": "cat"}}, "data_batch_2: its labels are no list of whole numbers"),
        ({"data_batch_2": {"labels": ["cat"] * 8}}, "data_batch_2: its labels are no list of whole numbers"),
        ({"test_batch": {"labels": [0] * 10 + [10]}}, "test_batch: labels run from 0 to 10, those of 10 classes"),
        ({"test_batch": {"labels": [0] * 10 + [-1]}}, "test_batch: labels run from -1 to 0"),
        ({"batches_meta": {"label_names": ["cat", "dog"]}}, "batches.meta: its label_names are not the 10 official"),
    ],
)
def test_wrong_contents_are_named(changes: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, write_official(tmp_path, CIFAR10, TRAIN, TEST, **changes))
    with pytest.raises(ap.InputError, match=message):
        load("cifar10", tmp_path)


def test_a_pickle_with_more_or_fewer_images_than_the_release_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = write_official(tmp_path, CIFAR100, noise(4, 100), noise(4, 100))
    release.train["train"] = 5  # type: ignore[index]
    use(monkeypatch, release)
    with pytest.raises(ap.InputError, match="train: 4 images and 4 labels where 5 of each belong"):
        load("cifar100", tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write_tree(tmp_path, "train", TRAIN, CIFAR10.classes)
    write_tree(tmp_path, "test", TEST, CIFAR10.classes)
    return tmp_path


@pytest.mark.parametrize(
    ("shape", "mode", "message"),
    [((33, 32, 3), "RGB", "is 32x33 RGB"), ((32, 32, 3), "L", "is 32x32 L"), ((32, 32, 3), "RGBA", "is 32x32 RGBA")],
)
def test_an_image_of_another_shape_is_named(tree: Path, shape: tuple[int, ...], mode: str, message: str) -> None:
    path = write_image(tree / "train" / "cat" / "odd.png", np.zeros(shape, np.uint8), mode)
    with pytest.raises(ap.InputError, match=f"{path} {message}, not 32x32 RGB"):
        load("cifar10", tree)


def test_a_folder_that_is_no_class_is_named(tree: Path) -> None:
    (tree / "test" / "cats").mkdir()
    with pytest.raises(ap.InputError, match=f"folder {tree / 'test' / 'cats'} is no class .*: did you mean 'cat'"):
        load("cifar10", tree)
    (tree / "test" / "cats").rename(tree / "test" / "zzz")
    with pytest.raises(ap.InputError, match="there are 10, such as 'airplane'"):
        load("cifar10", tree)


def test_a_part_without_images_is_named(tree: Path) -> None:
    shutil.rmtree(tree / "test")
    with pytest.raises(ap.InputError, match=f"no images in {tree / 'test'}"):
        load("cifar10", tree)
    (tree / "test" / "cat").mkdir(parents=True)
    with pytest.raises(ap.InputError, match=f"no images in {tree / 'test'}"):
        load("cifar10", tree)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", r"is empty \(0 bytes\)"),
        (lambda content: content[: len(content) // 2], "cannot be decoded"),
        (lambda content: b"no image at all", "cannot be decoded: UnidentifiedImageError"),
        (lambda content: content[:100] + bytes(100) + content[200:], "cannot be decoded"),
    ],
    ids=["empty", "truncated", "text", "zeroed"],
)
def test_a_broken_image_is_named(tree: Path, damage: object, message: str) -> None:
    path = next((tree / "train" / "dog").iterdir())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ap.InputError, match=f"{path} {message}"):
        load("cifar10", tree)


def test_a_link_to_nothing_is_named(tree: Path) -> None:
    (tree / "train" / "dog" / "away.png").symlink_to(tree / "nowhere.png")
    with pytest.raises(ap.InputError, match=r"away\.png cannot be read: No such file"):
        load("cifar10", tree)


def test_a_class_that_is_tested_must_be_trained(tmp_path: Path) -> None:
    dog = CIFAR10.classes.index("dog")
    write_tree(tmp_path, "train", TRAIN.take((TRAIN.labels != dog).nonzero().flatten()), CIFAR10.classes)
    write_tree(tmp_path, "test", Images(TRAIN.pixels[:1], torch.tensor([dog])), CIFAR10.classes)
    with pytest.raises(ap.InputError, match=f"no images of class 'dog' in {tmp_path / 'train'}"):
        load("cifar10", tmp_path)
