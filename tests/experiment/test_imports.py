"""Modules of the user's own."""

import sys
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.core import registry
from activeprune.experiment.imports import import_all


def test_a_folder_is_looked_into_last_and_only_for_what_is_named_by_module_and_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_network_of_a_test.py").write_text("def build(num_classes): return None\n")
    before = [*sys.path]
    monkeypatch.setattr(sys, "path", [*before])
    monkeypatch.setattr(registry, "_folders", [])
    import_all([], str(tmp_path))
    ap.build("resnet8")
    assert sys.path == before
    for _ in range(2):
        ap.build("own_network_of_a_test:build")
        assert sys.path == [*before, str(tmp_path)]
    sys.modules.pop("own_network_of_a_test")


def test_modules_of_ones_own_are_found_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_module_of_a_test.py").write_text("here = __file__\n")
    (tmp_path / "own_module_that_leaves.py").write_text("raise SystemExit('no')\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        import_all(["own_module_of_a_test"], str(tmp_path))
        assert sys.modules["own_module_of_a_test"].here == str(tmp_path / "own_module_of_a_test.py")
        assert sys.path.count(str(tmp_path)) == 1
        import_all(["own_module_of_a_test"], str(tmp_path))
        assert sys.path.count(str(tmp_path)) == 1
        with pytest.raises(ap.InputError, match="--import own_module_that_leaves: SystemExit: no"):
            import_all(["own_module_that_leaves"], str(tmp_path))
    finally:
        sys.modules.pop("own_module_of_a_test", None)
