"""Weights from a file that may be anybody's."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ..core.errors import InputError, first_line, listed
from ..core.prunable import plain_names


def load_weights(model: nn.Module, path: Path) -> None:
    """Loads weights and buffers, written by safetensors or by `torch.save`; nothing in the file is run."""
    given, own = plain_names(_read(path)), model.state_dict()
    if absent := [name for name in own if name not in given]:
        raise InputError(f"{path} is of another network: it has no {listed(absent)}")
    if foreign := [name for name in given if name not in own]:
        raise InputError(f"{path} is of another network, which has {listed(foreign)}")
    for name, tensor in own.items():
        there, here = tuple(given[name].shape), tuple(tensor.shape)
        if there != here:
            raise InputError(f"{path} is of another network: {name!r} is {there} there, {here} here")
        if given[name].is_floating_point() != tensor.is_floating_point():
            raise InputError(f"{path}: {name!r} holds {given[name].dtype} where {tensor.dtype} belongs")
        if not given[name].double().isfinite().all():
            raise InputError(f"{path}: {name!r} holds values that are no finite numbers: nothing could be said of it")
    model.load_state_dict(given)


def _read(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    try:
        _refuse_bomb(path)
        held: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except InputError:
        raise
    except Exception as error:  # a damaged file makes the readers raise nearly anything
        raise InputError(f"{path} holds no weights that can be read: {_reason(error)}") from error
    if isinstance(held, Mapping) and isinstance(held.get("state_dict"), Mapping):
        held = held["state_dict"]
    if not isinstance(held, Mapping) or not all(isinstance(n, str) and _plain(t) for n, t in held.items()):
        raise InputError(f"{path} holds no state dict: plain tensors of real numbers by name are needed")
    return held


def _refuse_bomb(path: Path) -> None:
    """`torch.save` compresses nothing: what would be larger in memory than on the disk is none of its files."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > path.stat().st_size:
            raise InputError(f"{path} is compressed, and would unfold to {size:,} bytes: a file of torch.save is not")


def _plain(tensor: object) -> bool:
    """Whether something is an ordinary tensor that has its numbers with it."""
    return isinstance(tensor, Tensor) and not (
        tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta
        or tensor.is_complex()
    )  # fmt: skip


def _reason(error: Exception) -> str:
    """In one line, and without torch's advice to run what is in the file."""
    if isinstance(error, pickle.UnpicklingError):
        asked = re.search(r"GLOBAL (\S+)", str(error))
        return f"it asks for {asked[1]}, which no weights need" if asked else "it is no pickle of tensors alone"
    return first_line(error)
