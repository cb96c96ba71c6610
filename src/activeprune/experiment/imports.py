"""Modules of the user's own that register methods, networks, data sets or rules: known again in every process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

from ..core.errors import InputError
from ..core.registry import look_in
from ..extras import repair_torchvision

_asked: list[str] = []  # of this process; its helpers read what is written down


class Imports(TypedDict):
    """Names of modules, and the folder where they are looked for, too: as they are written down."""

    imports: list[str]
    import_from: str


def ask_for(modules: Iterable[str]) -> None:
    """Imports modules, and remembers that these and no others were asked for: strangers' records may name them."""
    _asked[:] = modules
    import_all(_asked)


def asked_for() -> Imports:
    """The modules that this process was asked to import and where it looks for them, to be written down."""
    return Imports(imports=list(_asked), import_from=os.getcwd())


def import_asked_for(saved: Mapping[str, Any], file: Path) -> Imports:
    """Imports what another process wrote down in a file, and says what that is."""
    modules, folder = saved["imports"], saved["import_from"]
    if not isinstance(modules, list) or not all(isinstance(name, str) for name in (*modules, folder)):
        raise InputError(f"{file} cannot be read: its imports are no names of modules, or import_from is no folder")
    import_all(modules, folder)
    return Imports(imports=modules, import_from=folder)


def import_all(modules: Iterable[str], folder: str = "") -> None:
    """Imports modules from a folder, which the installed command does not look into by itself, or from elsewhere.

    What is named as `package.module:function` is then looked for there, too. Without a folder it is the one that the
    process is in now.
    """
    folder = folder or os.getcwd()
    look_in(folder)
    for module in modules:
        if module.endswith(".py"):
            raise InputError(f"--import {module}: a module is needed, not a file: {Path(module).stem}")
        repair_torchvision()
        sys.path[:] = [folder, *(place for place in sys.path if place != folder)]
        try:
            import_module(module)
        except (Exception, SystemExit) as error:  # whatever a stranger's module does when it is imported
            raise InputError(f"--import {module}: {type(error).__name__}: {error}") from error
