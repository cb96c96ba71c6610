"""Time and memory of a piece of work."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch


def seconds(
    work: Callable[[], object], repeats: int, device: torch.device, before: Callable[[], object] | None = None
) -> float:
    """Median wall time of `work` after one unmeasured call; `before` runs ahead of each call and is not timed."""
    times = []
    for _ in range(repeats + 1):
        if before:
            before()
        times.append(once(work, device))
    return statistics.median(times[1:])


def once(work: Callable[[], object], device: torch.device) -> float:
    """Wall time of one call."""
    settle(device)
    began = time.perf_counter()
    work()
    settle(device)
    return time.perf_counter() - began


def peak_extra_bytes(work: Callable[[], object], device: torch.device) -> int | None:
    """The most memory that `work` took beyond what was in use before it, its result included.

    On the CPU this is the process's resident memory, which only Linux lets one reset; elsewhere None.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        base = torch.cuda.memory_allocated(device)
        result = work()
        peak = torch.cuda.max_memory_allocated(device)
        del result
        return peak - base
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    ctypes.CDLL(None).malloc_trim(0)  # give freed memory back, so that reusing it counts again
    reset.write_text("5")
    base = _resident("VmRSS")
    result = work()
    peak = _resident("VmHWM")
    del result
    return peak - base


def settle(device: torch.device) -> None:
    """Waits until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{field} is not in /proc/self/status")
