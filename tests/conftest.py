"""Shared by all tests."""

import os
from pathlib import Path

# Some CPUs announce bfloat16 instructions (AMX) that a virtual machine cannot run; oneDNN then dies with SIGILL.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import pytest
import torch
from hypothesis import Phase, settings

settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
# A failure is enough to kill a mutant, the smallest failing example is not needed: make mutants
settings.register_profile("mutants", settings.get_profile("default"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("default")

# A comparison that fails in makers.py and the like shows its values, as one in a test does.
HERE = Path(__file__).parent
for file in HERE.rglob("*.py"):
    if not file.name.startswith(("test_", "conftest", "__init__")):
        pytest.register_assert_rewrite(".".join(["tests", *file.relative_to(HERE).with_suffix("").parts]))

torch.set_num_threads(1)  # two test processes on two cores, and tensors too small to share


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def a_checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("activeprune.experiment.work.compute.SECONDS_BETWEEN_CHECKPOINTS", 0.0)
