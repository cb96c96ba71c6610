"""Packages beyond the core, each behind an extra of this project."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from .core.errors import InputError

EXTRA_OF = {"timm": "vision", "torchvision": "vision", "tensorboard": "tensorboard"}


def need(module: str) -> ModuleType:
    """Imports an optional package, or says in one line how to install it."""
    extra = EXTRA_OF[module.partition(".")[0]]
    if not present(module.partition(".")[0]):
        raise InputError(f"{module} is not installed: pip install 'activeprune[{extra}]'")
    return import_module(module)


def present(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return find_spec(package) is not None
