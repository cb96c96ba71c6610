"""Weights from a file that may be anybody's."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ..core.errors import InputError, listed
from ..core.prunable import plain_names

UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError, SafetensorError)


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
    model.load_state_dict(given)


def _read(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    try:
        held: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except UNREADABLE as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"{path} holds no weights that can be read: {reason}") from error
    if isinstance(held, Mapping) and isinstance(held.get("state_dict"), Mapping):
        held = held["state_dict"]
    if not isinstance(held, Mapping) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise InputError(f"{path} holds no state dict: tensors by name are needed")
    return held
