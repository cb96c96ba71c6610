"""Activations of a running model, wherever it calls them: how often each neuron is dead."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..core.graph import Naming, kind_of
from ..core.graph.activations import NEAR_ZERO, OPERATORS
from .bytes import over_maps, over_samples
from .carrying import CPU, carried
from .counting import Counting
from .sparsity import measures_of_rows

ARGUMENTS = {  # what the arguments after the tensor are called, where they matter
    "hardtanh": ("min_val", "max_val"),
    "clamp": ("min", "max"),
    "clip": ("min", "max"),
    "clamp_min": ("min",),
    "threshold": ("threshold", "value"),
}
CONVOLUTIONS = {f"conv{transposed}{n}d" for transposed in ("", "_transpose") for n in (1, 2, 3)}
PRODUCTS = {"linear", "addmm", "matmul", "rmatmul", "mm", "bmm", "baddbmm", "einsum"}
SMALL = 1 << 17  # counts of so many neurons are brought to the CPU
CALL = nn.Module._call_impl.__code__


class Tally:
    """How often the neurons of one activation were dead.

    `units` counts for every unit of a sample the samples for which it was dead. Once maps change their size, or samples
    cannot be told apart, a unit is not the same from batch to batch: `units` ends, and `by_channel` goes on with pairs
    of unit and sample. `channels` counts for every channel the samples for which its whole map was dead.
    """

    def __init__(self, shape: Sequence[int], axis: int, device: torch.device) -> None:
        self.axis = axis  # of the channels, in a sample
        self.units: Tensor | None = torch.zeros(tuple(shape), dtype=torch.int32, device=device)
        self.by_channel = torch.zeros(shape[axis], dtype=torch.int64, device=device)
        self.channels = torch.zeros(shape[axis], dtype=torch.int32, device=device)
        self.samples = 0  # that were told apart
        self.neurons = 0  # of one sample, at most
        self.counted = 0
        self.measures: Tensor | None = None  # sums over samples

    def add(self, dead: Tensor, axis: int, share: float) -> None:
        """Counts `dead` [samples, *sample shape], bytes that are 1 where a unit is, channels at `axis` of a sample."""
        size = dead[0].numel() // dead.shape[axis + 1]
        maps = over_maps(dead, axis + 1)
        self._add_units(dead, maps)
        self.channels += (maps >= math.ceil(share * size - 1e-9)).sum(0, dtype=torch.int32)
        self.more(len(dead), dead[0].numel(), dead.numel())

    def more(self, samples: int, neurons: int, counted: int) -> None:
        """Notes how much was counted."""
        self.samples += samples
        self.neurons = max(self.neurons, neurons)
        self.counted += counted

    def clear(self) -> None:
        """Forgets all counts; the tensors keep their places."""
        for tensor in self.tensors().values():
            tensor.zero_()
        self.samples = self.neurons = self.counted = 0

    def tensors(self) -> dict[str, Tensor]:
        """What is counted on the device, by attribute."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def add_loose(self, dead: Tensor, samples: int) -> None:
        """Counts units of which one does not know to which sample they belong; channels are at the last axis."""
        self._lose_identity()
        self._add_units(dead, dead.reshape(-1, dead.shape[-1]))
        self.more(0, dead.numel() // samples, dead.numel())

    def _add_units(self, dead: Tensor, maps: Tensor) -> None:
        if self.units is not None and self.units.shape != dead.shape[1:]:
            self._lose_identity()
        if self.units is not None:
            self.units += over_samples(dead)
        else:
            self.by_channel += maps.sum(0)

    def _lose_identity(self) -> None:
        if self.units is not None:
            others = [a for a in range(self.units.dim()) if a != self.axis]
            self.by_channel += self.units.sum(others) if others else self.units
            self.units = None


class Watch(TorchFunctionMode):
    """Sees every function that this thread calls, and tallies the outputs of activations.

    `axis_of` tells by name and shape of a sample which axis the channels are at, where it is known; otherwise it is the
    last one after a linear layer and the first after a convolution.
    """

    def __init__(
        self,
        model: nn.Module,
        axis_of: Callable[[str, Sequence[int]], int | None],
        by_samples: Callable[[str, int, int], bool],
        counting: Counting,
    ) -> None:
        super().__init__()
        self.tallies: dict[str, Tally] = {}
        self.names: dict[str, None] = {}  # all that were seen, also if not chosen
        self.most_calls: dict[str, int] = {}  # of one place in one pass
        self.orders: set[tuple[str, ...]] = set()  # in which passes called them
        self._naming = Naming(model)
        self._axis_of, self._by_samples, self._counting = axis_of, by_samples, counting
        self._samples, self._after_linear = 1, True
        self._order: list[str] = []
        self._memories: dict[torch.dtype, Tensor] = {}

    @contextmanager
    def one_pass(self, samples: int) -> Iterator[None]:
        """In this context the model is called once, with so many samples."""
        self._naming.restart()
        self._samples, self._after_linear, self._order = samples, True, []
        with self:
            yield
        self.orders.add(tuple(self._order))
        for place, calls in self._naming.calls.items():
            self.most_calls[place] = max(calls, self.most_calls.get(place, 0))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        operator = getattr(func, "__name__", "").strip("_")
        if operator in OPERATORS:
            named = zip(ARGUMENTS.get(operator, ()), args[1:], strict=False)
            kind = kind_of(operator, {**dict(named), **kwargs})
            if kind is not None and isinstance(output, Tensor) and output.is_floating_point() and output.dim():
                self._saw(kind, output, sys._getframe(1))
        elif operator in CONVOLUTIONS or operator in PRODUCTS:
            self._after_linear = operator in PRODUCTS
        return output

    def _saw(self, kind: str, output: Tensor, frame: FrameType) -> None:
        name = self._naming.next(self._running(frame), kind)
        self.names[name] = None
        self._order.append(name)
        if not self._counting.chosen(name) or not output.numel():
            return
        with torch.inference_mode(False), torch.no_grad():
            if not self._by_samples(name, len(output), self._samples):
                tally = self._tally(name, output.shape, output.dim() - 1, output.device)
                tally.add_loose(self._dead(kind, output), self._samples)
                return
            values = output.reshape(self._samples, *sample_shape(output.shape, self._samples))
            axis = self._axis(name, values.shape[1:])
            tally = self._tally(name, values.shape[1:], axis, output.device)
            tally.add(self._dead(kind, values), axis, self._counting.share)
            if self._counting.companions:
                found = measures_of_rows(values.flatten(1)).sum(0)
                tally.measures = found if tally.measures is None else tally.measures + found

    def _running(self, frame: FrameType | None) -> str:
        """The path of the innermost module that is being called."""
        while frame is not None:
            if frame.f_code is CALL:
                path = self._naming.path(frame.f_locals["self"])
                if path is not None:
                    return path
            frame = frame.f_back
        return ""

    def _axis(self, name: str, shape: Sequence[int]) -> int:
        known = self._axis_of(name, shape)
        return known if known is not None else len(shape) - 1 if self._after_linear else 0

    def _tally(self, name: str, shape: Sequence[int], axis: int, device: torch.device) -> Tally:
        """That of the activation; where it comes with another number of channels, one for each number."""
        known = self.tallies.get(name)
        if known is not None and len(known.channels) != shape[axis]:
            name = f"{name}@{shape[axis]}"
        if name not in self.tallies:
            self.tallies[name] = Tally(shape, axis, device)
        return self.tallies[name]

    def _dead(self, kind: str, values: Tensor) -> Tensor:
        """Bytes, 1 where a unit is dead. A CPU is slow at comparing into bools and at taking new memory."""
        near = kind in NEAR_ZERO
        if values.device.type != "cpu":  # only on a GPU
            dead = values.abs() < self._counting.threshold if near else values == 0
            return dead.contiguous().view(torch.uint8)
        into = self._memory(values.shape, torch.bool)
        if near:
            sizes = self._memory(values.shape, torch.float32).copy_(values).abs_()
            return into.copy_(sizes.lt_(self._counting.threshold)).view(torch.uint8)
        return into.copy_(values).view(torch.uint8).bitwise_xor_(1)

    def _memory(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Of this shape, used again and again."""
        if dtype not in self._memories or self._memories[dtype].numel() < shape.numel():
            self._memories[dtype] = torch.empty(shape.numel(), dtype=dtype)
        return self._memories[dtype][: shape.numel()].view(shape)


def on_cpu(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """The counts, but for the largest, where many questions are answered sooner than on a GPU; all go there at once."""
    found = {name: copy(tally) for name, tally in tallies.items()}
    everything = [(tally, name, tensor) for tally in found.values() for name, tensor in tally.tensors().items()]
    places = [place for place in everything if place[2].numel() <= SMALL]
    for (tally, name, _), tensor in zip(places, carried([tensor for _, _, tensor in places], CPU), strict=True):
        setattr(tally, name, tensor)
    return found


def sample_shape(shape: Sequence[int], samples: int) -> tuple[int, ...]:
    """The shape of one sample's part of a tensor whose first axis holds the samples, each perhaps several times.

    >>> sample_shape((8, 3, 5, 5), 8), sample_shape((8 * 49, 16), 8), sample_shape((8,), 8)
    ((3, 5, 5), (49, 16), (1,))
    """
    folded = shape[0] // samples
    return (*((folded,) if folded > 1 else ()), *shape[1:]) or (1,)
