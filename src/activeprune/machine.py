"""The machine that a number was measured on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from .core.errors import InputError, first_line

AUTO, CPU = "auto", torch.device("cpu")
KINDS = ("cpu", "cuda", "mps")


def device(name: str | torch.device) -> torch.device:
    """The named device, if this machine has it; `auto` is a GPU where there is one. A device stays what it is.

    >>> device("gpu")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    activeprune.core.errors.InputError: device 'gpu' cannot be used here...: auto or cpu... can
    """
    if isinstance(name, torch.device):
        return name
    name = automatic() if name == AUTO else name
    try:
        place = torch.device(name)
        torch.zeros(1, device=place).item()
    except (RuntimeError, AssertionError) as error:
        known = name.partition(":")[0] in KINDS  # of another, torch lists twenty kinds that nobody has
        why = f" ({first_line(error).partition('. ')[0]})" if known else ""  # torch may go on with all its backends
        raise InputError(f"device {name!r} cannot be used here{why}: {' or '.join(_usable())} can") from error
    return place


def automatic() -> str:
    """The name of the device that `auto` stands for; nothing is started on it."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _usable() -> list[str]:
    cuda = ["cuda", *(f"cuda:{index}" for index in range(1, torch.cuda.device_count()))]
    return [
        AUTO,
        "cpu",
        *(cuda if torch.cuda.is_available() else ()),
        *(["mps"] if torch.backends.mps.is_available() else ()),
    ]


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


def cores() -> int:
    """How many threads or processes can compute at once."""
    return os.cpu_count() or 1


def gpus() -> list[str]:
    """The names of the GPUs that torch can use."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


@contextmanager
def one_thread(place: torch.device) -> Iterator[None]:
    """A CPU training runs in one thread: its bits then depend neither on the machine's cores nor on who else works."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if place.type == "cpu" else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
