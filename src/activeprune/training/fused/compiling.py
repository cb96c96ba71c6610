"""CUDA sources to kernels that run: compiled by NVRTC at first use, kept on disk, loaded by the driver.

NVRTC and the driver are called through ctypes: torch brings or needs both libraries on every CUDA machine, a handful of
functions is all that is used of them, and torch's own compiler of kernels is private and came only with torch 2.9.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch

from ...data.cache import directory
from ..unavailable import EngineUnavailable

OLDEST = (8, 0)  # compute capability: cp.async, and matrix products of bf16
_FOLDER = Path(__file__).with_name("kernels")
_OPTIONS = ("--std=c++17",)
_REFUSED: dict[bytes, str] = {}  # what does not compile, and why: to ask again takes as long and says the same
_OVERLAPPING = (9, 0)  # compute capability: a kernel can start before the one in front of it has ended
_MOST_DYNAMIC_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_...


@dataclass(frozen=True)
class Source:
    """A text in CUDA C++, and by name those that it includes."""

    text: bytes
    headers: Mapping[str, bytes] = field(default_factory=dict)

    def digest(self) -> bytes:
        """What tells this source from others."""
        parts = [self.text]
        for name, text in sorted(self.headers.items()):
            parts += [name.encode(), text]
        return sha256(b"".join(sha256(part).digest() for part in parts)).digest()


@lru_cache
def fused_source() -> Source:
    """The source of all kernels."""
    headers = {file.name: file.read_bytes() for file in sorted(_FOLDER.glob("*.cuh"))}
    return Source((_FOLDER / "kernels.cu").read_bytes(), headers)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes."""

    _fields_ = [("id", ctypes.c_int), ("_gap", ctypes.c_int), ("value", ctypes.c_int * 16)]


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


@dataclass(frozen=True)
class Kernel:
    """A kernel on a device, with the shape that its source gives it.

    `threads` of a block, bytes of dynamic `shared` memory, output `pixels` of a tile, and `resident` blocks: as many as
    the device holds at once where a block takes any share of the work, else 0.
    """

    name: str
    function: ctypes.c_void_p
    threads: int
    shared: int
    pixels: int
    resident: int
    overlaps: bool

    def launch(
        self,
        blocks: int,
        members: int,
        arguments: ctypes.Structure,
        shared: int | None = None,
        early: bool = False,
    ) -> None:
        """Puts the kernel on torch's current stream: `blocks` of work for each of `members` networks.

        `early`: its blocks may start while the kernel before still runs; it is theirs to wait.
        """
        grid = (min(blocks * members, self.resident), 1, 1) if self.resident else (blocks, members, 1)
        launch = _Launch(grid, (self.threads, 1, 1), self.shared if shared is None else shared)
        launch.stream = torch.cuda.current_stream().cuda_stream
        overlap = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, (1,))
        launch.attributes, launch.count = ctypes.pointer(overlap), int(early and self.overlaps)
        pointers = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(arguments), ctypes.c_void_p))
        _driver("cuLaunchKernelEx", ctypes.byref(launch), self.function, pointers, None)


class Module:
    """The compiled kernels on one device."""

    def __init__(self, cubin: bytes, processors: int, overlaps: bool = False) -> None:
        self._handle = ctypes.c_void_p()
        _driver("cuModuleLoadData", ctypes.byref(self._handle), cubin)
        self._processors, self._overlaps = processors, overlaps
        self._kernels: dict[str, Kernel] = {}

    def __getitem__(self, name: str) -> Kernel:
        """A kernel by its name in the source."""
        if name not in self._kernels:
            self._kernels[name] = self._find(name)
        return self._kernels[name]

    def _find(self, name: str) -> Kernel:
        function, address, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
        _driver("cuModuleGetFunction", ctypes.byref(function), self._handle, name.encode())
        shape = (ctypes.c_int * 4)()
        symbol = f"{name}_shape".encode()
        _driver("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._handle, symbol)
        _driver("cuMemcpyDtoH_v2", shape, address, ctypes.c_size_t(ctypes.sizeof(shape)))
        threads, shared, pixels, blocks = shape
        try:
            if shared:
                _driver("cuFuncSetAttribute", function, _MOST_DYNAMIC_SHARED_MEMORY, shared)
        except EngineUnavailable as error:
            raise EngineUnavailable(f"{name} needs {shared} bytes of shared memory a block: {error}") from error
        return Kernel(name, function, threads, shared, pixels, blocks * self._processors, self._overlaps)


def why_no_kernels(device: torch.device) -> str | None:
    """Why a device cannot run the kernels, before they are compiled; None if it can."""
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip is not None:
        return f"the fused kernels need an NVIDIA GPU that torch can use, not {device}"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST:
        return f"compute capability {capability[0]}.{capability[1]}: the fused kernels need {OLDEST[0]}.{OLDEST[1]}"
    return None


@lru_cache
def kernels(device: torch.device) -> Module:
    """The kernels on a device, compiled where they have not been."""
    if reason := why_no_kernels(device):
        raise EngineUnavailable(reason)
    capability = torch.cuda.get_device_capability(device)
    architecture = "sm_{}{}".format(*capability)
    code = cubin(fused_source(), architecture)
    with torch.cuda.device(device):
        torch.zeros((), device=device)  # there is a context from now on
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        overlaps = capability >= _OVERLAPPING
        try:
            return Module(code, processors, overlaps)
        except EngineUnavailable:  # what the disk kept may be damaged
            return Module(cubin(fused_source(), architecture, afresh=True), processors, overlaps)


def cubin(source: Source, architecture: str, afresh: bool = False) -> bytes:
    """A source compiled for an architecture such as "sm_90", from the disk where it has been compiled before."""
    version = ".".join(map(str, nvrtc_version()))
    key = sha256(source.digest() + "\0".join([architecture, version, *_OPTIONS]).encode())
    file = directory() / "kernels" / f"{key.hexdigest()[:32]}.cubin"
    with suppress(OSError):
        if not afresh:
            return file.read_bytes()
    if key.digest() in _REFUSED:
        raise EngineUnavailable(_REFUSED[key.digest()])
    try:
        compiled = compile_source(source, architecture)
    except EngineUnavailable as error:
        _REFUSED[key.digest()] = str(error)
        raise
    with suppress(OSError):  # a disk that cannot be written to costs time, not the training
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(compiled)
        os.replace(part.name, file)  # whole or not at all, whoever else compiles at the same time
    return compiled


def compile_source(source: Source, architecture: str) -> bytes:
    """NVRTC's machine code for a source; `EngineUnavailable` where it refuses, with its log as a note."""
    library = _nvrtc()
    program = ctypes.c_void_p()
    count = len(source.headers)
    texts = (ctypes.c_char_p * count)(*source.headers.values())
    names = (ctypes.c_char_p * count)(*(name.encode() for name in source.headers))
    created = library.nvrtcCreateProgram(ctypes.byref(program), source.text, b"kernels.cu", count, texts, names)
    _check_nvrtc(created, "start")
    try:
        options = [option.encode() for option in (*_OPTIONS, f"--gpu-architecture={architecture}")]
        failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if failed:
            log = _text(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace").strip()
            first = next((line for line in log.splitlines() if "error" in line), "no log")
            error = EngineUnavailable(f"the fused kernels do not compile for {architecture} (NVRTC {failed}: {first})")
            error.add_note(log)
            raise error
        return _text(library, "CUBIN", program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def nvrtc_version() -> tuple[int, int]:
    """The version of the NVRTC that compiles."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check_nvrtc(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "tell its version")
    return major.value, minor.value


def _text(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check_nvrtc(getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"give its {what}")
    buffer = ctypes.create_string_buffer(size.value)
    _check_nvrtc(getattr(library, f"nvrtcGet{what}")(program, buffer), f"give its {what}")
    return buffer.raw


def _check_nvrtc(code: int, what: str) -> None:
    if code:
        raise EngineUnavailable(f"NVRTC could not {what}: error {code}")


@lru_cache
def _nvrtc() -> ctypes.CDLL:
    """NVRTC, best the one that torch was built with: beside torch's other libraries, else where the system looks."""
    major = (torch.version.cuda or "").split(".")[0]
    folders = [folder for entry in sys.path for folder in sorted(Path(entry or ".").glob("nvidia/*/lib"))]
    folders += [Path(torch.__file__).parent / "lib"]
    files = [file for folder in folders for file in sorted(folder.glob("libnvrtc.so.*"))]
    files.sort(key=lambda file: not file.name.endswith(f".so.{major}"))
    names = [f"libnvrtc.so.{version}" for version in dict.fromkeys([major, "13", "12"]) if version]
    for library in [*map(str, files), *names]:
        try:
            # the library that holds NVRTC's own headers is looked for by name alone, so it has to be there already
            for helper in Path(library).parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(helper))
            return ctypes.CDLL(library)
        except OSError:
            continue
    raise EngineUnavailable("no NVRTC (libnvrtc.so) found: it comes with torch's CUDA builds")


@lru_cache
def _libcuda() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise EngineUnavailable(f"no NVIDIA driver: {error}") from error


def _driver(function: str, *arguments: object) -> None:
    code = getattr(_libcuda(), function)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _libcuda().cuGetErrorString(code, ctypes.byref(text))
        raise EngineUnavailable(f"{function}: {(text.value or b'unknown error').decode()} ({code})")
