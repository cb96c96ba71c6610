"""What README and the pages of docs/ show works, and what they name is there."""

import re
from pathlib import Path

import pytest
import torch

import activeprune as ap
from tests.helpers import SmallNet, pruned_are_zero, train

ROOT = Path(__file__).parent.parent


def test_every_test_that_is_named_is_there() -> None:
    """`core/test_masks.py` is a file under tests/, and what follows :: a test in it."""
    missing = []
    for page in (*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml"):
        text = page.read_text(encoding="utf-8")
        named = {*re.findall(r"tests/([\w/]+(?:\.py)?)", text), *re.findall(r"(?<![\w/])(?:\w+/)*test_\w+\.py", text)}
        missing += [path for path in named if not (ROOT / "tests" / path.removeprefix("tests/")).exists()]
        for path, test in re.findall(r"((?:\w+/)*test_\w+\.py)::(\w+)", text):
            file = ROOT / "tests" / path.removeprefix("tests/")
            if not file.is_file() or f"def {test}(" not in file.read_text(encoding="utf-8"):
                missing.append(f"{path}::{test}")
    assert not missing


def test_every_module_has_tests_under_its_name_or_a_row_that_says_where() -> None:
    """`core/masks` is tested in `core/test_masks.py`; others stand in the table of docs/testing.md, some by folder."""
    lines = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("| ") and "test_" in line]
    named = {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    package = ROOT / "src" / "activeprune"
    modules = [path.relative_to(package).with_suffix("") for path in package.rglob("*.py") if path.stem[:2] != "__"]
    elsewhere = {one for one in modules if not (ROOT / "tests" / one.parent / f"test_{one.name}.py").is_file()}
    assert len(modules) > 100
    assert not {
        one.as_posix()
        for one in elsewhere
        if one.as_posix() not in named and not any(f"{folder.as_posix()}/" in named for folder in one.parents)
    }
    assert not {name for name in named if not ((package / name).is_dir() or (package / f"{name}.py").is_file())}


def test_the_readmes_example_works_as_it_stands() -> None:
    """With the surroundings that it leaves to the reader: a model and a function that trains it."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    model = SmallNet()
    surroundings: dict = {"model": model}
    rewound = []

    def train_model(model: SmallNet, masks: ap.Masks) -> None:
        before = model.bn1.running_mean.clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with masks.hold(model, optimizer):
            train(model, optimizer, steps=1)

        rewound.append(torch.equal(before, surroundings["start"]["bn1.running_mean"]))

    surroundings["train"] = train_model
    exec(block.group(1), surroundings)
    assert surroundings["masks"].alive == 34  # 306, 245, 196, 157, 126, 101, 81, 65, 52, 42, 34
    assert pruned_are_zero(model, surroundings["masks"])
    assert rewound == [True] * 11  # the whole state, before every training


def after_the_examples_of(page: str, **given: object) -> dict:
    """What is there once all examples of a page of the documentation have run, from nothing but what is given."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    surroundings: dict = dict(given)
    for block in blocks:
        exec(block, surroundings)
    return surroundings


def test_the_examples_of_the_dead_neurons_page_work_as_they_stand() -> None:
    surroundings = after_the_examples_of("dead-neurons.md")
    assert surroundings["dnr"].unattributed == ()
    assert surroundings["counter"].result() == surroundings["dnr"]


def test_the_example_of_the_methods_page_works_as_it_stands() -> None:
    model = SmallNet()
    start, masks = {name: tensor.clone() for name, tensor in model.state_dict().items()}, ap.Masks.dense(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=1)
    pruned = after_the_examples_of("method.md", model=model, masks=masks, start=start)["pruned"]
    assert (pruned.masks.alive, pruned.by_rule) == (245, 6)  # of 306: 61 go, 6 of them by AP


def test_the_examples_of_the_pages_on_studies_and_reports_work_as_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    search = after_the_examples_of("studies.md")["search"]
    assert search.best() in search.validation()
    Path("runs/smoke").rename("runs/demo")  # the page asks for a run of demo, which takes longer
    after_the_examples_of("reports.md")
    assert Path("tables/tables.md").is_file()


def test_the_examples_of_the_training_page_work_as_they_stand() -> None:
    surroundings = after_the_examples_of("training.md")
    assert surroundings["result"].accuracy > 0.3
    assert surroundings["graph"].reading("conv.weight") == {"blocks.0.conv1.weight", "identity"}
