"""Results as bytes: states, masks, checkpoints and records, the same bytes for the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ...core.errors import InputError
from ...core.masks import Masks
from ...training import Checkpoint
from ...training.duration import Duration
from .entry import canonical, unfit

T = TypeVar("T")

ODD = SafetensorError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError
RECORD, STATE, MASKS, CHECKPOINT = "record.json", "state.safetensors", "masks.safetensors", "checkpoint.safetensors"


def probe_part(every: Duration) -> str:
    """Where what a probe saw in a training is kept."""
    return f"probe_{every}.json"


def record_bytes(record: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys, and numbers that are numbers.

    >>> record_bytes({"b": 1, "a": None})
    b'{"a": null, "b": 1}\\n'
    """
    return canonical(record, allow_nan=False)


def state_bytes(state: Mapping[str, Tensor]) -> bytes:
    """A safetensors file."""
    return save({name: tensor.contiguous() for name, tensor in state.items()})


def state_of(content: bytes) -> dict[str, Tensor]:
    """The inverse of `state_bytes`."""
    return load(content)


def masks_bytes(masks: Masks) -> bytes:
    """One bit a weight."""
    return masks.to_bytes()


def masks_of(content: bytes) -> Masks:
    """The inverse of `masks_bytes`."""
    return Masks.from_bytes(content)


def checkpoint_bytes(checkpoint: Checkpoint) -> bytes:
    """All that a training needs to go on."""
    return _through_a_file(checkpoint.save)


def checkpoint_of(content: bytes) -> Checkpoint:
    """The inverse of `checkpoint_bytes`."""
    return _from_a_file(content, Checkpoint.load)


@contextmanager
def usable(key: str, part: str) -> Iterator[None]:
    """Names the entry in whatever is wrong with the content of a part of it."""
    try:
        yield
    except ODD as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise unfit(key, part, f"cannot be used ({' '.join(reason.split())})") from error


def _through_a_file(write: Callable[[Path], None]) -> bytes:
    with TemporaryDirectory() as folder:
        write(Path(folder) / "bytes")
        return (Path(folder) / "bytes").read_bytes()


def _from_a_file(content: bytes, read: Callable[[Path], T]) -> T:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        path.write_bytes(content)
        try:
            return read(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "it")) from error  # of which nobody else knows
