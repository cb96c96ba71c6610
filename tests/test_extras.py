"""Packages that need not be there."""

import tomllib
from pathlib import Path

import pytest

import activeprune as ap
from activeprune import extras

ROOT = Path(__file__).parent.parent


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
