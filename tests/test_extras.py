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


def test_networks_of_torchvision_and_timm_are_found_by_module_and_name() -> None:
    """In a process that has imported neither: a torchvision for other devices than torch's would stop there."""
    if not all(map(extras.present, ("torchvision", "timm"))):
        pytest.skip("needs the extra vision")
    names = ["torchvision.models:mobilenet_v2", "timm.models.resnet:resnet18"]
    ask = (
        "import torch, activeprune as ap\n"
        f"print([ap.build(name, 7).eval()(torch.zeros(1, 3, 32, 32)).shape[1] for name in {names}])"
    )
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert asked.stdout == "[7, 7]\n"


def test_extras_are_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.EXTRA_OF.values()) | {"dev", "docs", "mutants"} == set(declared)
    for package, extra in extras.EXTRA_OF.items():
        assert any(requirement.startswith(package) for requirement in declared[extra])
