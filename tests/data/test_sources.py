"""Data sets are found by name, those of others too, and the bundled one is what scikit-learn has."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import activeprune as ap
from activeprune.data import DATASETS, Dataset, Outline, dataset, load, outline
from activeprune.data.sources import Source
from activeprune.experiment.plan import Plan
from activeprune.experiment.plan.reading import in_results, parsed, read_study, written
from tests.data.makers import noise


def mine(path: Path | None = None, size: int = 6) -> Dataset:
    """Noise."""
    return Dataset(f"mine at {path}", ("a", "b"), noise(size, 2), noise(2, 2))


def no_loader(path: Path | None = None) -> str:
    return "pixels"


def test_all_of_them_are_listed_with_a_line() -> None:
    assert set(DATASETS) >= {"cifar10", "cifar100", "digits", "imagefolder"}
    assert all(DATASETS[name].summary for name in DATASETS)


def test_ones_own_data_need_no_registration() -> None:
    assert DATASETS.find("tests.data.test_sources:mine").summary == "Noise."
    found = load("tests.data.test_sources:mine", "~/somewhere", size=8)
    assert found.name == f"mine at {Path.home() / 'somewhere'}"
    assert len(found.train) == 8


def test_options_of_ones_own_loader_come_from_a_study_and_are_part_of_what_the_data_are() -> None:
    named = {"data": "tests.data.test_sources:mine"}
    usual, other = read_study("smoke", named), read_study("smoke", {**named, "data.size": 8})
    assert [len(study.training.dataset().train) for study in (usual, other)] == [6, 8]
    assert other.training.outline() == ((3, 32, 32), 2)
    assert parsed(written(other), "study.yaml") == other
    assert read_study("smoke", {"data": {"name": named["data"], "options": {"size": 8}}}) == other
    assert read_study("smoke", {**named, "data.size": 6}) == usual  # its default
    assert not {step.key for step in Plan(usual).trainings} & {step.key for step in Plan(other).trainings}
    assert in_results(usual)["data"] != in_results(other)["data"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("sise", 8, "unknown option of 'tests.data.test_sources:mine' 'sise': did you mean 'size'? (known: content,"),
        ("size", [8], "option size = [8]: a number, a text, true or false is needed"),
        ("options", 8, "options = 8: names and values are needed, such as {size: 32}"),
        ("options", {"limit": 8}, "unknown option of 'tests.data.test_sources:mine' 'limit'"),
    ],
)
def test_a_wrong_option_of_a_loader_in_a_study_is_told(key: str, value: object, says: str) -> None:
    with pytest.raises(ap.InputError) as caught:
        read_study("smoke", {"data": "tests.data.test_sources:mine", f"data.{key}": value})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifra10", {}, "unknown data set 'cifra10': did you mean 'cifar10'"),
        ("tests.data.test_sources:hers", {}, "cannot be imported"),
        ("tests.data.no_such:hers", {}, "cannot be imported"),
        ("tests.data.test_sources:DATASETS", {}, "is no function"),
        ("tests.data.test_sources:no_loader", {}, "must return a Dataset, not str"),
        ("tests.data.test_sources:mine", {"sise": 3}, "unknown option of data set .* 'sise': did you mean 'size'"),
        ("digits", {"path": "/here"}, "takes no path, not '/here'"),
        ("imagefolder", {}, "needs a path"),
    ],
)
def test_a_wrong_name_or_option_says_what_would_be_right(name: str, options: dict, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        load(name, **options)


def test_a_loader_takes_a_path_and_has_a_name() -> None:
    with pytest.raises(ap.InputError, match="must take path"):
        Source("mine", lambda: load("digits"))
    with pytest.raises(ap.InputError, match="a name in quotation marks"):
        dataset(mine)  # type: ignore[arg-type]


def test_what_images_look_like_is_known_without_them(tmp_path: Path) -> None:
    assert outline("cifar10", tmp_path / "nowhere") == ((3, 32, 32), 10)
    assert outline("imagefolder") == ((3, 224, 224), 1000)
    for name in ("cat", "dog", ".hidden"):
        (tmp_path / "train" / name).mkdir(parents=True)
    assert outline("imagefolder", tmp_path).classes == 2
    assert outline("tests.data.test_sources:mine") == ((3, 32, 32), 2)  # nobody told: it is loaded


def test_a_registration_that_tells_otherwise_than_the_data_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASETS, "_known", {**DATASETS._known})
    monkeypatch.setattr(DATASETS, "_origin", {**DATASETS._origin})
    dataset("wrong", outline=Outline((3, 32, 32), 3))(mine)
    with pytest.raises(ap.InputError, match=r"'wrong' is registered with .*classes=3.* loader returns .*classes=2"):
        load("wrong")


def test_digits_are_scikit_learns_without_loss() -> None:
    digits, bundled = load("digits"), load_digits()
    assert digits.classes == tuple("0123456789")
    assert len(digits.train) + len(digits.test) == 1797
    pixels = torch.cat([digits.train.pixels, digits.test.pixels])
    assert pixels.shape == (1797, 1, 8, 8)
    assert int(pixels.max()) == 240
    ours = sorted(
        map(tuple, np.c_[pixels.flatten(1).numpy() / 15, torch.cat([digits.train.labels, digits.test.labels])])
    )
    assert ours == sorted(map(tuple, np.c_[bundled.data, bundled.target]))


def test_a_fifth_of_each_digit_is_for_testing_and_always_the_same() -> None:
    digits = load("digits")
    sizes = np.bincount(load_digits().target)
    assert len(digits.test) == 359
    assert all(abs(np.bincount(digits.test.labels) - sizes / 5) < 1)
    assert torch.equal(digits.test.pixels, load("digits").test.pixels)


def test_importing_the_package_is_light() -> None:
    program = "import sys, torch; before = set(sys.modules); import activeprune.data; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    roots = {name.partition(".")[0] for name in loaded}
    assert "activeprune" in roots
    assert not roots & {"sklearn", "PIL", "torchvision", "rich", "tqdm", "scipy", "pandas", "matplotlib"}
