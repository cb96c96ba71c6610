"""The kernels' arguments are laid out as the kernels read them."""

from __future__ import annotations

import ctypes
import inspect
import re

import pytest

from activeprune.training.fused import arguments
from activeprune.training.fused.compiling import fused_source
from activeprune.training.fused.units import UNITS

SOURCE = b"\n".join([*fused_source().headers.values(), fused_source().text]).decode()
MIRRORS = [found for _, found in inspect.getmembers(arguments, inspect.isclass) if issubclass(found, ctypes.Structure)]
TYPES = {"int": ctypes.c_int, "float": ctypes.c_float, "long long": ctypes.c_longlong}


def fields(name: str) -> list[tuple[str, object]]:
    """Names and types of a structure of the CUDA source, in order."""
    body = re.search(rf"struct {name} {{(.*?)\n}};", SOURCE, re.DOTALL)
    assert body is not None, name
    found: list[tuple[str, object]] = []
    for declaration in re.sub(r"//[^\n]*", "", body[1]).split(";"):
        if not declaration.strip():
            continue
        kind, first = re.fullmatch(r"\s*(?:const )?(long long|\w+)\b\s*(.*)", declaration, re.DOTALL).groups()  # type: ignore[union-attr]
        for one in first.split(","):
            own = TYPES.get(kind) or getattr(arguments, kind, None)
            found.append((one.strip(" *\n"), ctypes.c_void_p if "*" in one else own))
    return found


@pytest.mark.parametrize("mirror", MIRRORS, ids=lambda mirror: mirror.__name__)
def test_a_structure_has_the_fields_of_the_kernels(mirror: type[ctypes.Structure]) -> None:
    assert list(mirror._fields_) == fields(mirror.__name__)


def test_every_unit_belongs_to_a_kernel() -> None:
    declared = set(re.findall(r"^(?:FORWARD|BACKWARD|PROJECT|SHAPE)\((\w+)", SOURCE, re.MULTILINE))
    assert set(UNITS) <= declared
