"""Pickles of CIFAR, read without letting them do anything.

A pickle names functions and has them called. The only names that an official file needs are those of a numpy array
of bytes, and each of them gives a stand-in of this file: no function of numpy, nor any other that a file could choose,
is ever called.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..core.errors import InputError


def checked_bytes(path: Path, md5: str) -> bytes:
    """A whole file, if it is the one with this MD5."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: download the data again, or name another path") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise InputError(f"{path} is empty (0 bytes): download it again")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise InputError(f"{path} is not the official file: its MD5 is {found}, expected {md5}: download it again")
    return content


def unpickled(content: bytes, path: Path) -> dict[str, Any]:
    """The dictionary in a pickle: numbers, text (bytes), lists and arrays of bytes. `path` is what errors name."""
    try:
        found = _Reader(io.BytesIO(content), encoding="bytes").load()
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except Exception as error:  # a damaged pickle makes the reader raise nearly anything
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is no pickle that can be read: {type(error).__name__}: {reason}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds a {type(found).__name__} where a dictionary belongs")
    return {text(key): value.array if isinstance(value, _Array) else value for key, value in found.items()}


def text(value: object) -> str:
    """Text of a pickle that Python 2 wrote (bytes) or Python 3 (str).

    >>> text(b"labels"), text("labels")
    ('labels', 'labels')
    """
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise InputError(f"it asks for {module}.{name}, which no data of CIFAR need: refused")
        return _STAND_INS[module, name]()


class _StandIn:
    """Without attributes, and without a state that a pickle could set."""

    __slots__ = ()

    def __setstate__(self, state: object) -> NoReturn:
        raise InputError("it changes what it may only call: refused")


class _Kind(_StandIn):
    """The type of an array's elements, which can only be bytes."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:  # type: ignore[override]  # byte order, which bytes do not have
        pass


class _Array:
    """An array whose content follows."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array = np.empty(0, np.uint8)

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, bytes]) -> None:
        _, shape, kind, columns_first, data = state
        if not isinstance(kind, _Kind) or columns_first or not isinstance(data, bytes):
            raise InputError("an array in it is no plain array of bytes: refused")
        self.array = np.frombuffer(data, np.uint8).reshape(shape)


class _NdarrayName(_StandIn):
    __slots__ = ()


class _DtypeName(_StandIn):
    __slots__ = ()

    def __call__(self, code: object, *_: object) -> _Kind:
        if text(code) != "u1":
            raise InputError(f"an array in it holds {text(code)!r} where bytes ('u1') belong: refused")
        return _Kind()


class _ReconstructName(_StandIn):
    __slots__ = ()

    def __call__(self, of: object, *_: object) -> _Array:
        if not isinstance(of, _NdarrayName):
            raise InputError("it makes an array that is no array: refused")
        return _Array()


class _EncodeName(_StandIn):
    """How Python 3 writes bytes in an old protocol: as text to be encoded."""

    __slots__ = ()

    def __call__(self, characters: object, encoding: object) -> bytes:
        if not isinstance(characters, str) or text(encoding) != "latin1":
            raise InputError("it encodes something else than bytes: refused")
        return characters.encode("latin1")


_STAND_INS: dict[tuple[str, str], type[_StandIn]] = {
    ("numpy.core.multiarray", "_reconstruct"): _ReconstructName,  # as numpy 1 spelt it
    ("numpy._core.multiarray", "_reconstruct"): _ReconstructName,
    ("numpy", "ndarray"): _NdarrayName,
    ("numpy", "dtype"): _DtypeName,
    ("_codecs", "encode"): _EncodeName,
}
