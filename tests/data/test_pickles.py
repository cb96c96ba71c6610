"""A file is read only if it is the official one, and even then it cannot make anything happen."""

import builtins
import codecs
import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import activeprune as ap
from activeprune.data.pickles import checked_bytes, text, unpickled
from tests.data.makers import python2_pickle, python3_pickle

HERE = Path("data_batch_1")


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize("dumps", [python2_pickle, python3_pickle, lambda content: pickle.dumps(content, protocol=4)])
def test_numbers_texts_lists_and_arrays_come_back(dumps: Callable[[dict], bytes]) -> None:
    data = np.arange(256, dtype=np.uint8).reshape(4, 64)
    found = unpickled(dumps({"labels": [3, 1, 255, 70000], "data": data, "names": ["cat", "dog"]}), HERE)
    assert found["labels"] == [3, 1, 255, 70000]
    assert np.array_equal(found["data"], data)
    assert found["data"].dtype == np.uint8
    assert [text(name) for name in found["names"]] == ["cat", "dog"]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "hostile",
    [
        lambda mark: Calls(os.system, f"touch {mark}"),
        lambda mark: Calls(builtins.eval, f"open({str(mark)!r}, 'w').close()"),
        lambda mark: Calls(builtins.exec, f"open({str(mark)!r}, 'w').close()"),
        lambda mark: Calls(getattr, Calls(__import__, "os"), "system"),
        lambda mark: Calls(np.save, str(mark), 1),
        lambda mark: Calls(codecs.decode, "touch", "rot13"),
        lambda mark: Calls(np.ndarray.tobytes, b""),
    ],
    ids=["os.system", "eval", "exec", "getattr", "numpy.save", "codecs.decode", "method"],
)
def test_what_a_pickle_wants_called_is_not_called(hostile: Callable, protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "mark.npy"
    content = pickle.dumps({"data": [hostile(mark)]}, protocol=protocol)
    with pytest.raises(ap.InputError, match=r"^data_batch_1: it asks for .*, which no data of CIFAR need: refused$"):
        unpickled(content, HERE)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Calls(codecs.encode, "touch", "rot13"), "encodes something else than bytes"),
        (Calls(codecs.encode, b"x", "zlib_codec"), "encodes something else than bytes"),
        (Calls(codecs.encode, "x"), "TypeError"),
        (np.array(["x", os], dtype=object)[:1], "holds 'O8' where bytes"),
        (np.zeros(3), "holds 'f8' where bytes"),
        (np.zeros((3, 2), np.uint8, order="F"), "no plain array of bytes"),
        (Calls(np.dtype, "O"), "holds 'O' where bytes"),
        (Calls(np.ndarray, (10**12,)), "TypeError"),
    ],
)
def test_the_few_names_that_are_known_do_nothing_else(value: object, message: str) -> None:
    with pytest.raises(ap.InputError, match=message):
        unpickled(pickle.dumps({"data": value}, protocol=2), HERE)


NDARRAY, RECONSTRUCT = b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n"


@pytest.mark.parametrize(
    "code",
    [
        NDARRAY + b"}U\x01aK\x01sb",  # sets an attribute of it
        NDARRAY + b"N}U\x08__call__K\x01s\x86b",  # the same by its slots
        NDARRAY + b")\x81",  # makes one of it
        RECONSTRUCT + b"K\x01K\x00\x85U\x01b\x87R",  # an array of type 1
        RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01b\x87R(K\x01(K\x05tK\x01\x89U\x01xtb",  # of elements of type 1
        RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01b\x87R(K\x01tb",  # with a state that is none
        b"cnumpy\nndarray.__class__\n",
        b"\x8c\x05numpy\x8c\x14ndarray.__subclasses__\x93",
        b"U\x04evilQ",  # a persistent id
        b"\x82\x01",  # an extension
        b"",
    ],
)
def test_pickles_written_by_hand_are_refused_too(code: bytes) -> None:
    with pytest.raises(ap.InputError, match=r"^data_batch_1"):
        unpickled(b"\x80\x04}U\x04data" + code + b"s.", HERE)


def test_damaged_pickles_are_named() -> None:
    whole = python2_pickle({"labels": [1], "data": np.zeros((2, 3), np.uint8)})
    for length in range(len(whole)):
        with pytest.raises(ap.InputError, match=r"^data_batch_1"):
            unpickled(whole[:length], HERE)
    with pytest.raises(ap.InputError, match="holds a list where a dictionary belongs"):
        unpickled(pickle.dumps([1]), HERE)


def test_only_the_official_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    with pytest.raises(ap.InputError, match=f"{path} is missing"):
        checked_bytes(path, "0" * 32)
    path.write_bytes(b"")
    with pytest.raises(ap.InputError, match=f"{path} is empty"):
        checked_bytes(path, "0" * 32)
    path.write_bytes(b"abc")
    assert checked_bytes(path, "900150983cd24fb0d6963f7d28e17f72") == b"abc"  # from RFC 1321
    with pytest.raises(
        ap.InputError, match=r"its MD5 is 900150983cd24fb0d6963f7d28e17f72, expected 0+: download it again"
    ):
        checked_bytes(path, "0" * 32)
    with pytest.raises(ap.InputError, match=f"{tmp_path} cannot be read"):
        checked_bytes(tmp_path, hashlib.md5(b"").hexdigest())
