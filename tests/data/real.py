"""The real CIFAR, where it lies next to the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data"


def official_cifar(name: str, target: Path) -> Path:
    """Writes the official files of `cifar10` or `cifar100` into `target`, or skips the test where there is no source.

    Takes a few seconds; the folder that comes back is what `load(name, path)` takes.
    """
    program = SHARED / "unpack_cifar.py"
    if not program.is_file() or not (SHARED / name).is_dir():
        pytest.skip(f"the real {name} is not at {SHARED / name}")
    command = [sys.executable, program, SHARED / name, target, "--format", "torchvision", "--jobs", "1"]
    subprocess.run(command, check=True, capture_output=True)
    return target
