"""Packages beyond the core, each behind an extra of this project."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .core.errors import InputError

EXTRA_OF = {"timm": "vision", "torchvision": "vision", "tensorboard": "tensorboard"}


def need(module: str) -> ModuleType:
    """Imports an optional package, or says in one line how to install it."""
    extra = EXTRA_OF[module.partition(".")[0]]
    if not present(module.partition(".")[0]):
        raise InputError(f"{module} is not installed: pip install 'activeprune[{extra}]'")
    if extra == "vision":
        repair_torchvision()
    return import_module(module)


def present(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return find_spec(package) is not None


@cache
def repair_torchvision() -> None:
    """Lets a CUDA build of torchvision be imported beside a CPU build of torch.

    Its compiled operators cannot be loaded there, and its Python part stops at the first one that it misses. Declared
    without an implementation, they are missed only by those who call them (box operators, no network of ours).
    """
    found = find_spec("torchvision")
    if "torchvision" in sys.modules or found is None or found.origin is None:
        return
    load: Any = torch.ops.load_library
    for library in Path(found.origin).parent.glob("_C*.so"):
        try:
            load(library)
        except OSError:
            for name in ("nms", "qnms"):
                schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{name}", schema)
