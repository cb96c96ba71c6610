"""Packages that need not be there."""

import subprocess
import sys
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


@pytest.mark.parametrize(
    "ask",
    [
        "[ap.build(n, 7) for n in ('torchvision.models:mobilenet_v2', 'timm.models.resnet:resnet18')]",
        "ap.build('torchvision.models:resnet18', 7)",
        "activeprune.data.DATASETS.find('torchvision.datasets.folder:find_classes')",
        "activeprune.experiment.imports.import_all(['torchvision'])",
    ],
)
def test_torchvision_and_timm_are_imported_by_name(ask: str) -> None:
    """In a process that has imported neither: a torchvision for other devices than torch's would stop there."""
    if not all(map(extras.present, ("torchvision", "timm"))):
        pytest.skip("needs the extra vision")
    code = f"import activeprune.data, activeprune.experiment.imports, activeprune as ap\ntry: {ask}\n"
    code += "except ap.InputError as error: print(error)\n"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    of_no_loader = "data set 'torchvision.datasets.folder:find_classes': its loader must take path\n"
    assert asked.stdout == (of_no_loader if "DATASETS" in ask else "")


def test_extras_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.EXTRA_OF.values()) | {"dev", "docs", "mutants"} == set(declared)
    for package, extra in extras.EXTRA_OF.items():
        assert any(requirement.startswith(package) for requirement in declared[extra])
