"""Which weights are alive."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn

from .errors import InputError, kind_of, listed
from .hold import Hold
from .prunable import Patterns, prunable, refuse_shared, standard_names, unwrapped

FORMAT = "activeprune.masks/1"


class Masks(Mapping[str, Tensor]):
    """A bool tensor for every prunable weight, by parameter name; True = alive.

    The order is that of `named_parameters`, and ties between equal scores follow it. Masks are values: no
    function of this library changes one, each returns a new one. `left_out` names the prunable weights that
    were left out on purpose; with it, masks can tell that a model is not the one they were made for.

    >>> masks = Masks.dense(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    >>> masks
    Masks(2 layers, 18 of 18 weights alive, density 1.0000)
    >>> masks["2.weight"].shape, masks.total, masks.density
    (torch.Size([2, 3]), 18, 1.0)
    """

    def __init__(self, tensors: Mapping[str, Tensor], left_out: Iterable[str] | None = None) -> None:
        if not isinstance(tensors, Mapping):
            raise InputError(
                f"masks are bool tensors by name, not {kind_of(tensors)}: ap.Masks.dense(model) makes them"
            )
        if not tensors:
            raise InputError("masks need at least one weight")
        for name, mask in tensors.items():
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                got = mask.dtype if isinstance(mask, Tensor) else kind_of(mask)
                raise InputError(f"mask of {name!r} must be a bool tensor, got {got}")
        self._tensors = dict(tensors)
        self._left_out = None if left_out is None else frozenset(left_out)

    @classmethod
    def dense(cls, model: nn.Module, include: Patterns = None, exclude: Patterns = None) -> Masks:
        """All weights alive. `include` and `exclude` choose layers by pattern, as in `prunable`."""
        chosen = prunable(model, include, exclude)
        left_out = set(standard_names(model)) - set(chosen)
        return cls({name: torch.ones_like(weight, dtype=torch.bool) for name, weight in chosen.items()}, left_out)

    # -- what they say

    @property
    def alive(self) -> int:
        """The number of alive weights."""
        return sum(int(mask.count_nonzero()) for mask in self.values())

    @property
    def total(self) -> int:
        """The number of prunable weights."""
        return sum(mask.numel() for mask in self.values())

    @property
    def density(self) -> float:
        """λ = alive / prunable, in [0, 1]."""
        return self.alive / self.total

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Masks):
            return NotImplemented
        return list(self) == list(other) and all(torch.equal(self[name], other[name]) for name in self)

    __hash__ = None  # type: ignore[assignment]  # tensors have no stable hash

    def __repr__(self) -> str:
        return f"Masks({len(self)} layers, {self.alive:,} of {self.total:,} weights alive, density {self.density:.4f})"

    # -- new masks from old ones

    def without(self, chosen: Mapping[str, Tensor], reuse: bool = False) -> Masks:
        """These masks less the positions where `chosen` is True. `reuse`: in the memory of `chosen`, which is lost."""
        if reuse:
            return self._like({name: chosen[name].logical_not_().logical_and_(mask) for name, mask in self.items()})
        return self._like({name: mask & ~chosen[name] for name, mask in self.items()})

    def to(self, device: torch.device | str) -> Masks:
        """The same masks on another device."""
        return self._like({name: mask.to(device) for name, mask in self.items()})

    def _like(self, tensors: Mapping[str, Tensor]) -> Masks:
        return Masks(tensors, self._left_out)

    # -- what they do to a model

    def checked_count(self, count: int) -> int:
        """The count as a Python number; refuses to prune fewer than none or more than are alive."""
        try:
            number = operator.index(count)
        except TypeError as error:
            raise InputError(
                f"a count of weights must be a whole number, not {count!r}; "
                "n_x, n_ap = ap.Budget(p, q).split(masks.alive) gives two"
            ) from error
        if not 0 <= number <= self.alive:
            raise InputError(f"cannot prune {number} of {self.alive} alive weights")
        return number

    def weights_of(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """The weights that these masks are for; an error if they belong to another model."""
        parameters = dict(unwrapped(model).named_parameters(remove_duplicate=False))
        kind = type(unwrapped(model)).__name__
        if absent := [name for name in self if name not in parameters]:
            raise InputError(f"masks of another model: {kind} has no weight {listed(absent)}")
        for name, mask in self.items():
            if mask.shape != parameters[name].shape:
                raise InputError(
                    f"masks of another model: {name!r} is {tuple(mask.shape)} in the masks "
                    f"and {tuple(parameters[name].shape)} in {kind}"
                )
        if self._left_out is not None:
            known = {*self, *self._left_out}
            if unmasked := [name for name in standard_names(model) if name not in known]:
                raise InputError(f"masks of another model: they have no mask for {listed(unmasked)} of {kind}")
        weights = {name: parameters[name] for name in self}
        refuse_shared(weights, parameters)
        return weights

    @torch.no_grad()
    def apply_(self, model: nn.Module) -> Masks:
        """Sets every pruned weight of the model to exactly 0."""
        for name, weight in self.weights_of(model).items():
            weight.masked_fill_(~self[name].to(weight.device), 0)
        return self

    def hold(self, model: nn.Module, optimizer: torch.optim.Optimizer, *more: torch.optim.Optimizer) -> Hold:
        """Applies the masks and keeps every pruned weight at exactly 0 through all steps of the optimiser, or of all
        the optimisers, where the model has more than one.

        Gradients and momentum of pruned weights are cleared and stay 0, and weights loaded with
        `load_state_dict` are masked again. No parameter is renamed and no module wrapped. A model has one hold: to
        prune in the middle of a training, `hold` the new masks with the same optimiser. `remove()` ends it; it also
        works in a `with` statement. Copies of the model are not held.
        """
        self.weights_of(model)
        return Hold(unwrapped(model), dict(self), (optimizer, *more))

    # -- as bytes, and on disk

    def to_bytes(self) -> bytes:
        """A safetensors file, one bit a weight; names, shapes and order are in its metadata."""
        from safetensors.numpy import save

        description = {
            "shapes": {name: list(mask.shape) for name, mask in self.items()},
            "left_out": None if self._left_out is None else sorted(self._left_out),
        }
        bits = {name: np.packbits(mask.reshape(-1).cpu().numpy()) for name, mask in self.items()}
        return save(bits, metadata={FORMAT: json.dumps(description)})  # one key: several come in any order

    @classmethod
    def from_bytes(cls, content: bytes) -> Masks:
        """The inverse of `to_bytes`, onto the CPU."""
        from safetensors.numpy import load

        what = "what was given"
        with _readable(what):
            tensors = load(content)  # which checks the header, too: its length, then JSON
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            return cls._described(what, header.get("__metadata__"), tensors.__getitem__)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file of `to_bytes`, whole or not at all."""
        path = Path(path)
        part = path.with_name(f".{path.name}.{uuid4().hex}.part")
        try:
            part.write_bytes(self.to_bytes())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Masks:
        """Reads what `save` wrote, onto the CPU; of another file it reads no more than the header."""
        from safetensors import safe_open

        what = os.fspath(path)
        if not Path(path).is_file():
            raise InputError(f"no such file: {what}")
        with _readable(what), safe_open(path, framework="numpy") as file:
            return cls._described(what, file.metadata(), file.get_tensor)

    @classmethod
    def _described(cls, what: str, metadata: Mapping[str, str] | None, bits_of: Callable[[str], np.ndarray]) -> Masks:
        if metadata is None or FORMAT not in metadata:
            raise InputError(f"{what} is not a masks file (no {FORMAT!r} in its metadata)")
        description = json.loads(metadata[FORMAT])
        tensors = {name: _unpacked(name, bits_of(name), shape) for name, shape in description["shapes"].items()}
        left_out = description["left_out"]
        if not (left_out is None or isinstance(left_out, list)):
            raise ValueError(f"left_out is {left_out!r}")
        return cls(tensors, left_out)


def checked_masks(masks: object) -> Masks:
    """What was passed as masks, if it is that: arguments are easily swapped."""
    if not isinstance(masks, Masks):
        raise InputError(
            f"masks (ap.Masks) are needed, not {kind_of(masks)}: ap.Masks.dense(model) has all weights alive"
        )
    return masks


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Names the file, which may be anybody's, in whatever is wrong with it."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{what} is not a readable masks file: {error}") from error


def _unpacked(name: str, bits: np.ndarray, shape: list[int]) -> Tensor:
    """The mask behind packed bits; the file may be anybody's, so its shape is checked against them."""
    if any(not isinstance(side, int) or side < 0 for side in shape):
        raise ValueError(f"{name!r} has shape {shape}")
    size = math.prod(shape)
    if bits.dtype != np.uint8 or bits.shape != ((size + 7) // 8,):
        raise ValueError(f"{name!r} is {bits.dtype} of shape {bits.shape}, not {size} bits")
    return torch.from_numpy(np.unpackbits(bits, count=size).view(np.bool_).reshape(shape))
