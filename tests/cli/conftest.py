"""Shared by the tests of the command line."""

from pathlib import Path

import pytest
import torch

from activeprune.cli import main
from tests.cli.makers import SMALL, training


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is done."""
    out = tmp_path_factory.mktemp("runs") / "smoke"
    assert main(["run", "smoke", "--out", str(out), *SMALL]) == 0
    return out


@pytest.fixture
def model() -> torch.nn.Module:
    """What `activeprune dnr resnet8 --data digits` measures, but for its weights."""
    return training().build(10, 1, seed=5)
