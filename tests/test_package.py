"""What the package promises as a whole: what imports what, and how light it is."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch

import activeprune as ap
from activeprune import extras
from activeprune.report.paper import published, tables
from tests.helpers import SmallNet, pruned_are_zero, train

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "activeprune"
HEAVY = {"matplotlib", "sklearn", "pydantic", "typer", "rich", "jinja2", "yaml", "pandas", "bokeh"}


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports anywhere, as absolute names."""
    package = ["activeprune", *path.relative_to(SOURCE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} if node.module else {f"{module}.{alias.name}" for alias in node.names}
    return found


@cache
def arrows() -> dict[str, set[str]]:
    """Each room, and the rooms of this package that it imports, as the table of docs/architecture.md says."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, below = page.partition("| in `src/activeprune/` | what is in it | imports |\n|---|---|---|\n")
    rows = [line.strip("| ").split(" | ") for line in below.partition("\n\n")[0].splitlines()]
    return {
        room.strip("`"): {name.strip(" |") for name in row[2].split(",")} if len(row) == 3 else set()
        for row in rows
        for room in row[0].split(", ")
    }


def room_of(parts: Sequence[str]) -> str:
    """The room that a file or module is in: of the folders that the table has a row for, the innermost."""
    return max((room for room in arrows() if parts[: len(split := room.split("/"))] == split), key=len)


def own_room(path: Path) -> str:
    """The room of a file."""
    return room_of(list(path.relative_to(SOURCE).with_suffix("").parts))


def rooms_of(path: Path) -> set[str]:
    """The other rooms that a file imports."""
    modules = [name.split(".")[1:] for name in imports_of(path) if name.startswith("activeprune.")]
    return {room_of(module) for module in modules} - {own_room(path)}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_arrows_point_one_way(path: Path) -> None:
    assert rooms_of(path) <= arrows()[own_room(path)]


def test_the_table_of_arrows_has_none_too_many_and_none_that_leads_back() -> None:
    real: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        real.setdefault(own_room(path), set()).update(rooms_of(path))
    assert arrows() == real
    left = dict(real)
    while lowest := [room for room, imported in left.items() if not imported & set(left)]:
        left = {room: imported for room, imported in left.items() if room not in lowest}
    assert not left


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=lambda path: path.name)
def test_core_imports_torch_and_numpy_alone(path: Path) -> None:
    """safetensors too, where masks are saved and loaded and nowhere else."""
    roots = {name.partition(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names)
    assert roots <= {"torch", "numpy", "activeprune"} | ({"safetensors"} if path.name == "masks.py" else set())


def test_import_activeprune_is_light() -> None:
    program = "import sys, activeprune; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "activeprune" in loaded
    assert not loaded & HEAVY


def test_the_contracts_names_are_there() -> None:
    for name in (
        "build",
        "Masks",
        "Budget",
        "score",
        "prune_lowest",
        "activate",
        "method",
        "trace",
        "run",
        "results",
        "dead_neurons",
    ):
        assert name in ap.__all__
    assert all(hasattr(ap, name) for name in ap.__all__)


def test_versions_and_pins_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    }
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    assert {requirement.split(">")[0].lower() for requirement in wanted} <= pinned
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().split()


def test_a_missing_extra_is_one_line_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "present", lambda package: False)
    with pytest.raises(ap.InputError, match=r"^timm is not installed: pip install 'activeprune\[vision\]'$"):
        extras.need("timm")
    monkeypatch.undo()
    assert extras.need("tensorboard").__name__ == "tensorboard"


def test_extras_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.EXTRA_OF.values()) | {"dev", "docs", "mutants"} == set(declared)
    for package, extra in extras.EXTRA_OF.items():
        assert any(requirement.startswith(package) for requirement in declared[extra])


def test_the_papers_numbers_are_inside() -> None:
    assert {f"table{n}" for n in range(1, 7)} <= set(tables())
    table1 = published()["table1"]["rows"]
    assert [cell["lambda"] for cell in table1["method_x"]] == [100, 64.0, 40.9, 32.8, 26.2, 13.4, 8.59, 5.72]
    assert (table1["ap_pro"][-1]["mean"], table1["method_x"][-1]["mean"]) == (84.1, 81.2)
    assert all("says" in claim for claim in published()["claims"])


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
