"""Every random choice is a function of (seed, purpose, index)."""

from __future__ import annotations

import hashlib
import operator
import threading

import torch

from .errors import InputError


def stable_seed(seed: int, purpose: str, index: int) -> int:
    """A 63-bit seed that is the same in every process, on every machine, for ever.

    >>> stable_seed(0, "method", 1)
    5129524039197467062
    """
    try:
        text = f"{operator.index(seed)}/{purpose}/{operator.index(index)}"
    except TypeError as error:
        raise InputError(f"seed and index must be whole numbers, not {seed!r} and {index!r}") from error
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


torchs_own = threading.RLock()
"""Held by whoever seeds torch's global generator, until it has drawn what it needs: threads share that generator.

And by whoever traces or compiles: torch puts the generator's state back afterwards, and cannot do two of these at once.
"""


def generator(seed: int, purpose: str, index: int) -> torch.Generator:
    """A CPU generator, so that CPU and GPU runs draw the same numbers."""
    return torch.Generator(device="cpu").manual_seed(stable_seed(seed, purpose, index))
