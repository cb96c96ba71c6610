"""What CONTRIBUTING.md says a contributor need do is enough, and what it says is asked for is asked for."""

import re
from pathlib import Path
from typing import get_args

import pytest

import activeprune as ap
from activeprune.cli import main
from activeprune.core.activation import RULES
from activeprune.core.methods import METHODS, Chain
from activeprune.core.registry import Registry
from activeprune.data import DATASETS
from activeprune.experiment.plan.reading import read_study
from activeprune.experiment.plan.study import Variant
from activeprune.networks import NETWORKS
from activeprune.report.looks import LOOKS

ROOT = Path(__file__).parent.parent
PACKAGE_OF = {"A method": "core.methods", "A network": "networks", "A data set": "data"}
NAMED_IN = {  # as this file is read, before any test registers another
    "method.md": [*METHODS, *RULES],
    "training.md": [*NETWORKS, *DATASETS],
    "studies.md": [*get_args(Variant), *get_args(Chain)],
}


def examples(title: str, language: str) -> list[str]:
    """The examples under a title of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples, as if each were a file in its folder; afterwards nobody knows them."""
    registries: list[Registry] = [METHODS, NETWORKS, DATASETS]
    for registry in registries:
        monkeypatch.setattr(registry, "_known", {**registry._known})
        monkeypatch.setattr(registry, "_origin", {**registry._origin})
    for title, folder in PACKAGE_OF.items():
        (example,) = examples(title, "python")
        exec(example, {"__name__": f"activeprune.{folder}.example", "__package__": f"activeprune.{folder}"})


@pytest.mark.usefixtures("_registered")
def test_the_four_examples_are_a_study_that_runs(tmp_path: Path) -> None:
    file = tmp_path / "stripes.yaml"
    file.write_text(examples("A study", "yaml")[0], encoding="utf-8")
    run = ap.run(file, out=tmp_path / "run")
    study = read_study(file)
    assert (study.training.network.name, study.training.data.name, study.method.name) == (
        "two_layers", "stripes", "signed_magnitude",
    )  # fmt: skip
    alive = {row["cycle"]: row["alive"] for row in run.rows() if row["cycle"]}
    assert alive == {1: 924, 2: 647}  # of 64 · 20 + 20 · 2 = 1320; 0.3 · 1320 = 396, 0.3 · 924 = 277.2
    assert max(row["accuracy"] for row in run.rows()) > 0.9  # stripes are easy
    assert main(["report", str(tmp_path / "run"), "--no-figures", "--no-page"]) == 0
    assert "two_layers on stripes, signed_magnitude" in (tmp_path / "run" / "tables.md").read_text(encoding="utf-8")


def test_the_example_that_extends_a_study_is_read(tmp_path: Path) -> None:
    file = tmp_path / "table1-lamp.yaml"
    file.write_text(examples("A study", "yaml")[1], encoding="utf-8")
    assert read_study(file) == read_study("table1", {"method": "lamp"})


@pytest.mark.parametrize("page", NAMED_IN)
def test_the_docs_have_a_row_for_everything_that_is_found_by_name(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = "".join(line for line in text.splitlines() if line.startswith("|"))
    missing = [name for name in NAMED_IN[page] if f"`{name}`" not in rows]
    assert not missing, f"docs/{page} has no row for {missing}"


def test_every_variant_has_a_look() -> None:
    assert set(LOOKS) == set(get_args(Variant))
