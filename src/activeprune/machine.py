"""The machine that a number was measured on."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from .core.errors import InputError


def device(name: str) -> torch.device:
    """The named device, if this machine has it."""
    try:
        place = torch.device(name)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return place


def described(place: torch.device) -> str:
    """A device and its torch in a few words, to stand beside a number."""
    if place.type == "cuda":
        return f"{torch.cuda.get_device_name(place)}, torch {torch.__version__}"
    return f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def processor() -> str:
    """The CPU's name."""
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else []
    return models[0] if models else platform.processor() or platform.machine()


def gpus() -> list[str]:
    """The names of the GPUs that torch can use."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """A CPU training runs in one thread: its bits then depend neither on the machine's cores nor on who else works."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
