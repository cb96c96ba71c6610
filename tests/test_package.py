"""What the package promises as a whole: what imports what, and how light it is."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.report.paper import published, tables

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


def test_what_a_user_needs_is_there_by_its_name() -> None:
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


def test_the_papers_numbers_are_inside() -> None:
    assert {f"table{n}" for n in range(1, 7)} <= set(tables())
    table1 = published()["table1"]["rows"]
    assert [cell["lambda"] for cell in table1["method_x"]] == [100, 64.0, 40.9, 32.8, 26.2, 13.4, 8.59, 5.72]
    assert (table1["ap_pro"][-1]["mean"], table1["method_x"][-1]["mean"]) == (84.1, 81.2)
    assert all("says" in claim for claim in published()["claims"])
