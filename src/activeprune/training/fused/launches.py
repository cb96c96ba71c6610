"""The kernels of a step in order, each with its arguments: what training and evaluation have in common."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor

from . import arguments as args
from .layout import Conv, Norm
from .memory import STEPS, Buffers, Networks, Shared
from .units import Cut

HEAD_IMAGES = 8  # a block of the last kernel
NONE, IDENTITY, PADDED, PROJECTED = range(4)  # enum Shortcut of the kernels

Way = Literal["next", "aside", "joining"]


@dataclass(frozen=True)
class Launch:
    """A kernel's launch: after the one before, `aside` of the others on a stream of its own, or `joining` the two again
    because it needs the result of those aside.

    `launch` is told whether the kernel follows the one before alone, so that the two may overlap.
    """

    kernel: str
    launch: Callable[[bool], None]
    way: Way = "next"


class Source(NamedTuple):
    """Where a block's input comes from: a convolution's output and its norm, and what is added to that: its `kind`, its
    address, and a projection's norm. Without a norm's arrays, it is there as it is. All by address.
    """

    output: int
    norm: args.Norm
    kind: int = NONE
    shortcut: int | None = None
    shortcut_norm: args.Norm = args.Norm()


class Launches:
    """The launches of a step for the networks of some slots, whose norms take the running statistics.

    `buffers` hold the values between two kernels, of `parts` batches at once.
    """

    def __init__(self, shared: Shared, networks: Networks, buffers: Buffers) -> None:
        self.shared, self.layout, self.kernels = shared, shared.layout, shared.kernels
        self.networks, self.members = networks, len(networks.step)
        self.buffers, self.batch = buffers, buffers.batch
        self.parts = buffers.batch // shared.recipe.batch
        self.launches: list[Launch] = []

    @property
    def moments(self) -> Tensor:
        """Mean and variance of every norm's channels."""
        return self.networks.running

    def room_for_sums(self, norm: Norm, rows: int) -> Tensor | None:
        """Where the partial sums go that a norm's moments are made of, if they are."""
        return None

    def sums(self, norm: Norm) -> Tensor | None:
        """The same when they are there."""
        return None

    def source(self, index: int) -> Source:
        """Of what the input of block `index` is made; behind the last block: what is pooled."""
        layout, buffers = self.layout, self.buffers
        if not index:
            return Source(at(buffers.raw(layout.stem)), self.norm(layout.stem.norm))
        last = layout.blocks[index - 1].conv2
        return Source(at(buffers.raw(last)), self.norm(last.norm), *self.shortcut(index - 1))

    # ---- the kernels that training and evaluation share

    def gather(self) -> None:
        """Images to a batch, and their labels."""
        networks = self.networks
        a = args.Gather(
            images=at(self.shared.images),
            labels=at(self.shared.labels),
            codes=at(networks.codes),
            step=at(networks.step),
            scale=at(networks.scale),
            shift=at(networks.shift),
            output=at(self.buffers.pixels("input", 32, 4)),
            targets=at(self.buffers.targets()),
            steps=STEPS // self.parts,
            batch=self.batch,
        )
        self.add("gather", self.batch, a)

    def stem(self) -> None:
        """The first convolution."""
        stem, cut = self.layout.stem, self.cut("stem_forward", 32)
        a = args.StemForward(
            input=at(self.buffers["input"]),
            weights=at(self.networks.packed_forward, stem.packed),
            output=at(self.buffers.raw(stem)),
            sums=_if_any(self.room_for_sums(stem.norm, cut.units)),
            weight_pitch=self.layout.packed // 8,
            images=self.batch,
            tiles=cut.tiles,
            per_block=cut.per_unit,
        )
        self.add("stem_forward", cut.units, a)

    def begin_block(self, index: int) -> None:
        """A block's input, its first convolution and that of its shortcut."""
        block, source = self.layout.blocks[index], self.source(index)
        kind = "project" if block.projection else "down" if block.conv1.down else "join"
        a = args.Forward(input=source.output, norm=source.norm, kind=source.kind, shortcut=source.shortcut)
        a.shortcut_norm = source.shortcut_norm
        if source.norm.gamma:
            a.joined = at(self.buffers.joined(index))
        if block.projection:
            a.project_weights = at(self.networks.packed_forward, block.projection.packed)
            a.projected = at(self.buffers.raw(block.projection))
        self._convolve(f"forward_{block.conv1.outputs}_{kind}", block.conv1, a, block.projection)

    def end_block(self, index: int) -> None:
        """A block's second convolution."""
        block = self.layout.blocks[index]
        a = args.Forward(input=at(self.buffers.raw(block.conv1)), norm=self.norm(block.conv1.norm))
        self._convolve(f"forward_{block.conv2.outputs}_middle", block.conv2, a)

    def _convolve(self, kernel: str, conv: Conv, a: args.Forward, projection: Conv | None = None) -> None:
        cut = self.cut(kernel, conv.side)
        a.weights = at(self.networks.packed_forward, conv.packed)
        a.output = at(self.buffers.raw(conv))
        a.sums = _if_any(self.room_for_sums(conv.norm, cut.units))
        if projection is not None:
            a.projected_sums = _if_any(self.room_for_sums(projection.norm, cut.units))
        a.cut = args.Cut(cut.tiles, cut.per_unit, cut.units, self.members, 1)
        a.weight_pitch = self.layout.packed // 8
        a.parameters, a.channels, a.images = self.layout.size, self.layout.channels, self.batch
        self.add(kernel, cut.units, a)

    def head(self, training: Callable[[args.Head, int], None] = lambda a, blocks: None) -> None:
        """Pooling, linear layer and loss, and what `training` adds to the arguments of so many blocks."""
        layout, networks = self.layout, self.networks
        blocks, source = self.batch // HEAD_IMAGES, self.source(len(layout.blocks))
        weight, bias = layout.parameters["fc.weight"], layout.parameters["fc.bias"]
        a = args.Head(
            output=source.output,
            shortcut=source.shortcut,
            norm=source.norm,
            shortcut_norm=source.shortcut_norm,
            weight=at(networks.parameters, weight.start),
            bias=at(networks.parameters, bias.start),
            targets=at(self.buffers["targets"]),
            losses=at(self.buffers.floats("losses", blocks, 2)),
            kind=source.kind,
            classes=layout.classes,
            **self.common(),
        )
        training(a, blocks)
        self.add("head", blocks, a, 4 * (256 + 9 * 128 + 8 * 64 + 8 * layout.classes + 16))

    def finish(self, training: Callable[[args.Finish], None] = lambda a: None) -> None:
        """The results of the step, and what `training` adds to the arguments."""
        networks, losses = self.networks, self.buffers["losses"]
        a = args.Finish(
            active=at(networks.active),
            losses=at(losses),
            table=at(networks.table),
            step=at(networks.step),
            channels=self.layout.channels,
            blocks=losses.shape[1] // self.parts,
            parts=self.parts,
            steps=STEPS // self.parts,
        )
        training(a)
        self.add("finish", 1, a)

    # ---- common to many kernels

    def shortcut(self, index: int) -> tuple[int, int, args.Norm]:
        """What is added at the end of block `index`, as `Source` has it."""
        block = self.layout.blocks[index]
        if block.projection is not None:
            return PROJECTED, at(self.buffers.raw(block.projection)), self.norm(block.projection.norm)
        return PADDED if block.conv1.down else IDENTITY, at(self.buffers.joined(index)), args.Norm()

    def norm(self, norm: Norm) -> args.Norm:
        """A norm as the reader of its input sees it."""
        networks, parameters = self.networks, self.layout.parameters
        sums = self.sums(norm)
        return args.Norm(
            sums=_if_any(sums),
            moments=at(self.moments, norm.start),
            gamma=at(networks.parameters, parameters[f"{norm.name}.weight"].start),
            beta=at(networks.parameters, parameters[f"{norm.name}.bias"].start),
            blocks=0 if sums is None else sums.shape[1],
            inverse=1 / (self.batch * norm.side**2),
        )

    def add(self, kernel: str, blocks: int, a: ctypes.Structure, shared: int | None = None, way: Way = "next") -> None:
        """One more launch: `blocks` of work for each network."""
        launch = partial(self.kernels[kernel].launch, blocks, self.members, a, shared)
        self.launches.append(Launch(kernel, launch, way))

    def cut(self, kernel: str, side: int) -> Cut:
        """How a kernel's work on a batch is cut into units."""
        return Cut.of(self.kernels[kernel], self.batch * side**2)

    def common(self) -> dict[str, int]:
        """Arguments that many kernels have."""
        return {"parameters": self.layout.size, "channels": self.layout.channels, "images": self.batch}


def at(tensor: Tensor, element: int = 0) -> int:
    """The address of a tensor's element."""
    return tensor.data_ptr() + element * tensor.element_size()


def _if_any(tensor: Tensor | None) -> int | None:
    return None if tensor is None else at(tensor)
