"""Every random choice is a function of (seed, purpose, index)."""

from __future__ import annotations

import hashlib
import operator
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
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


# ---- generators that are everybody's, which a network draws from if it has none of its own


def seed_pythons(seed: int) -> None:
    """Seeds NumPy's and Python's; torch's are the caller's, who knows on which devices."""
    random.seed(seed)
    with suppress(TypeError):  # somebody has put another kind of generator in the place of NumPy's
        np.random.seed(seed % 2**32)  # noqa: NPY002  which is what old code draws from


def everybodys_states(device: torch.device) -> tuple[object, ...]:
    """Of these generators, to be compared."""
    on_gpu = torch.cuda.get_rng_state(device).tolist() if device.type == "cuda" else None
    with np.printoptions(threshold=sys.maxsize):
        numpys = repr(np.random.get_state(legacy=False))  # noqa: NPY002
    return on_gpu, torch.get_rng_state().tolist(), random.getstate(), numpys


@contextmanager
def everybodys_kept(devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Puts the states of these generators back in the end; of torch's, that of the CPU and those of the GPUs named."""
    pythons, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(list(devices)):
            yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)  # noqa: NPY002
