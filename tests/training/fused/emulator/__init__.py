"""The fused kernels on a CPU: their own source, compiled by a C++ compiler, with threads that take turns."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from activeprune.training.fused.compiling import Source, fused_source

FOLDER = Path(__file__).parent
COMPILER = shutil.which("c++") or shutil.which("g++")
OPTIONS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-fno-strict-aliasing", "-w")
PROCESSORS = 3  # few, so that a block has several units of work


def on_cpu(text: bytes) -> bytes:
    """CUDA's ways of declaring what C++ has no words for."""
    shared = rb"extern __shared__ __align__\(16\) (\w+) (\w+)\[\];"
    text = re.sub(shared, rb"\1* \2 = (\1*)emulator::dynamic_shared;", text)
    return re.sub(rb"const __grid_constant__ (\w+) a\b", rb"const \1& a", text)


def compiled(folder: Path, source: Source | None = None) -> Emulated:
    """The kernels, compiled in an empty folder."""
    assert COMPILER is not None
    source = source or fused_source()
    for name, text in source.headers.items():
        (folder / name).write_bytes(on_cpu(text))
    for file in FOLDER.glob("*.[ch]*"):
        shutil.copy(file, folder / file.name)
    (folder / "kernels.cpp").write_bytes(b'#include "cuda.hpp"\n' + on_cpu(source.text))
    library = folder / "kernels.so"
    subprocess.run([COMPILER, *OPTIONS, "-o", library, folder / "kernels.cpp"], check=True)
    return Emulated(library)


@dataclass(frozen=True)
class Kernel:
    """A kernel with the shape that its source gives it, see `activeprune.training.fused.compiling.Kernel`."""

    library: ctypes.CDLL
    name: str
    threads: int
    shared: int
    pixels: int
    resident: int

    def launch(
        self, blocks: int, members: int, arguments: ctypes.Structure, shared: int | None = None, early: bool = False
    ) -> None:
        width, height = (min(blocks * members, self.resident), 1) if self.resident else (blocks, members)
        size = self.shared if shared is None else shared
        function = ctypes.cast(self.library[self.name], ctypes.c_void_p)
        problem = self.library.launch(function, width, height, self.threads, size, ctypes.byref(arguments))
        if problem:
            raise RuntimeError(f"{self.name}: {problem.decode()}")


class Emulated:
    """Compiled kernels by name, like `activeprune.training.fused.compiling.Module`."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.launch.restype = ctypes.c_char_p

    def __getitem__(self, name: str) -> Kernel:
        threads, shared, pixels, blocks = (ctypes.c_int * 4).in_dll(self._library, f"{name}_shape")
        return Kernel(self._library, name, threads, shared, pixels, blocks * PROCESSORS)

    def schedule(self, order: int, copies_at_once: bool = False) -> None:
        """In which order threads and blocks take their turns, and whether copies are done when they are asked for."""
        self._library.schedule(ctypes.c_ulonglong(order), int(copies_at_once))
