"""The kernels of a step in order, each with its arguments, and the memory between them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from . import arguments as args
from .compiling import Module
from .layout import ALIGNMENT, Block, Conv, Layout, Norm

STEPS = 512  # that tables of order, crops, rates and losses have room for; more are done in several goes
HEAD_IMAGES = 8  # a block of the last kernel
NONE, IDENTITY, PADDED, PROJECTED = range(4)  # enum Shortcut of the kernels

# Output pixels of a unit of work, in the order of a step. Part of the numbers' definition, because units are what sums
# are cut into. Measured on an H200: more are faster for many networks, fewer for one (half of the GPU is idle then).
UNITS = {
    "stem_forward": 1024,
    "forward_16_join": 1024,
    "forward_16_middle": 1024,
    "forward_32_down": 512,
    "forward_32_project": 512,
    "forward_32_join": 256,
    "forward_32_middle": 256,
    "forward_64_down": 128,
    "forward_64_project": 128,
    "forward_64_join": 256,
    "forward_64_middle": 256,
    "backward_64_middle": 256,
    "backward_64_join": 256,
    "backward_64_down": 256,
    "project_backward_64": 512,
    "backward_32_middle": 512,
    "backward_32_join": 512,
    "backward_32_down": 512,
    "project_backward_32": 512,
    "backward_16_middle": 1024,
    "backward_16_join": 1024,
    "stem_backward": 1024,
}
# Units whose weight gradients are added up before all others: by the block that computed them where the networks are
# enough to keep every block busy with so many, which saves memory traffic, else by the update. The same numbers.
RUNS = {16: 4, 32: 2, 64: 2}  # by output channels
BALANCED = 1.05  # how much longer the longest block may take with whole runs
SHORTCUT_CHUNKS = 2048  # runs of 8 channels that a block of the shortcuts' sums adds


@dataclass(frozen=True)
class Step:
    """A kernel's launch: `aside` of the others, on a stream of its own, until one that `joins` needs its result.

    `launch` is told whether the kernel follows the one before alone, so that the two may overlap.
    """

    kernel: str
    launch: Callable[[bool], None]
    aside: bool = False
    joins: bool = False


@dataclass(frozen=True)
class Shared:
    """What all networks have in common: their kind, their training, and the images that they take theirs from."""

    layout: Layout
    kernels: Module
    images: Tensor
    labels: Tensor
    batch: int
    momentum: float
    nesterov: bool
    weight_decay: float
    label_smoothing: float
    forward_slots: Tensor  # of the layout, on the device
    backward_slots: Tensor


@dataclass(frozen=True)
class Networks:
    """What each network has for itself, [K, ...]."""

    parameters: Tensor
    velocity: Tensor
    running: Tensor
    mask: Tensor
    packed_forward: Tensor  # the convolutions' weights once more, in bf16 and in the order of the products
    packed_backward: Tensor
    scale: Tensor  # and shift: how its images are normalised
    shift: Tensor
    active: Tensor
    codes: Tensor  # row, crop and flip of each image of each step
    rates: Tensor
    table: Tensor  # loss and right answers of each step, both summed
    step: Tensor

    @classmethod
    def zeros(cls, count: int, layout: Layout, batch: int, device: torch.device) -> Networks:
        """Networks with nothing in them yet."""

        def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(count, *shape, dtype=dtype, device=device)

        return cls(
            parameters=new(layout.size),
            velocity=new(layout.size),
            running=new(2, layout.channels),
            mask=new(layout.size, dtype=torch.uint8),
            packed_forward=new(layout.packed, dtype=torch.bfloat16),
            packed_backward=new(layout.packed, dtype=torch.bfloat16),
            scale=new(4),
            shift=new(4),
            active=new(dtype=torch.uint8),
            codes=new(STEPS, batch, dtype=torch.int32),
            rates=new(STEPS),
            table=new(STEPS, 2),
            step=new(dtype=torch.int32),
        )

    def part(self, slots: slice) -> Networks:
        """Some of them, in the same memory."""
        return Networks(*(getattr(self, field.name)[slots] for field in fields(self)))


@dataclass(frozen=True)
class _Rows:
    """Partial sums of a parameter's gradient, [K, rows, width] from column `first` on; each `run` is added up first."""

    rows: Tensor
    first: int = 0
    run: int = 1


class Plan:
    """The launches of a step of training or of evaluation for the networks of some slots.

    `parts` batches are evaluated at once. `buffers` holds every intermediate value of all networks by name: "conv/raw"
    the output of a convolution, "blocks.0/joined" a block's input, "norm/sums" and "norm/gradient_sums" rows of partial
    sums, "conv/weight_sums", and so on.
    """

    def __init__(
        self,
        shared: Shared,
        networks: Networks,
        slots: slice,
        buffers: dict[str, Tensor],
        parts: int = 1,
        training: bool = True,
    ) -> None:
        self.shared, self.layout, self.kernels = shared, shared.layout, shared.kernels
        self.networks, self.slots, self.buffers = networks.part(slots), slots, buffers
        self.all, self.members = len(networks.step), len(self.networks.step)
        self.parts, self.batch, self.training = parts, shared.batch * parts, training
        self._sums: dict[str, _Rows] = {}  # by parameter
        self.steps: list[Step] = []
        self._forward()
        if training:
            self._backward()
            self._update()
        self._finish()

    # ---- forward

    def _forward(self) -> None:
        networks, layout, stem = self.networks, self.layout, self.layout.stem
        pixels = self._buffer("input", self.batch, 32, 32, 4, dtype=torch.bfloat16)
        targets = self._buffer("targets", self.batch, dtype=torch.int32)
        gather = args.Gather(
            images=_at(self.shared.images),
            labels=_at(self.shared.labels),
            codes=_at(networks.codes),
            step=_at(networks.step),
            scale=_at(networks.scale),
            shift=_at(networks.shift),
            output=_at(pixels),
            targets=_at(targets),
            steps=STEPS // self.parts,
            batch=self.batch,
        )
        self._add("gather", self.batch, gather)
        tiles, per_block, blocks = self._cut("stem_forward", 32)
        first = args.StemForward(
            input=_at(pixels),
            weights=_at(networks.packed_forward, stem.packed),
            output=_at(self._raw(stem)),
            sums=self._norm_sums(stem.norm, blocks),
            weight_pitch=layout.packed // 8,
            images=self.batch,
            tiles=tiles,
            per_block=per_block,
        )
        self._add("stem_forward", blocks, first)
        for index, block in enumerate(layout.blocks):
            kind = "project" if block.projection else "down" if block.conv1.down else "join"
            self._convolve(f"forward_{block.conv1.outputs}_{kind}", block.conv1, index)
            self._convolve(f"forward_{block.conv1.outputs}_middle", block.conv2, None)
        self._head()

    def _convolve(self, kernel: str, conv: Conv, index: int | None) -> None:
        """A 3x3 convolution: the first of block `index`, or the second of its block."""
        layout = self.layout
        before = self._before(conv)
        tiles, per_block, blocks = self._cut(kernel, conv.side)
        a = args.Forward(
            input=_at(self._raw(before)),
            weights=_at(self.networks.packed_forward, conv.packed),
            output=_at(self._raw(conv)),
            sums=self._norm_sums(conv.norm, blocks),
            norm=self._norm(before.norm),
            weight_pitch=layout.packed // 8,
            cut=args.Cut(tiles, per_block, blocks, self.members, 1),
            **self._common(),
        )
        if index is not None:
            a.kind, a.shortcut, a.shortcut_norm = self._shortcut(index)
            a.joined = _at(self._joined(index))
            if projection := layout.blocks[index].projection:
                a.project_weights = _at(self.networks.packed_forward, projection.packed)
                a.projected = _at(self._raw(projection))
                a.projected_sums = self._norm_sums(projection.norm, blocks)
        self._add(kernel, blocks, a)

    def _head(self) -> None:
        layout, networks = self.layout, self.networks
        last = layout.blocks[-1].conv2
        blocks = self.batch // HEAD_IMAGES
        weight, bias = layout.parameters["fc.weight"], layout.parameters["fc.bias"]
        kind, shortcut, shortcut_norm = self._shortcut(len(layout.blocks))
        a = args.Head(
            output=_at(self._raw(last)),
            shortcut=shortcut,
            norm=self._norm(last.norm),
            shortcut_norm=shortcut_norm,
            weight=_at(networks.parameters, weight.start),
            bias=_at(networks.parameters, bias.start),
            targets=_at(self._kept("targets")),
            losses=_at(self._buffer("losses", blocks, 2)),
            smoothing=self.shared.label_smoothing if self.training else 0.0,
            kind=kind,
            classes=layout.classes,
            **self._common(),
        )
        if self.training:
            a.gradient = _at(self._gradient(8, 0))
            a.sums = _at(self._gradient_sums(last.norm, blocks))
            a.weight_sums = _at(self._weight_sums("fc.weight", blocks))
            a.bias_sums = _at(self._weight_sums("fc.bias", blocks))
        self._add("head", blocks, a, 4 * (256 + 9 * 128 + 8 * 64 + 8 * layout.classes + 16))

    def _shortcut(self, index: int) -> tuple[int, int | None, args.Norm]:
        """What is added where block `index` begins: its kind, its address, and a projection's norm."""
        if not index:
            return NONE, None, args.Norm()
        block = self.layout.blocks[index - 1]
        if block.projection is not None:
            return PROJECTED, _at(self._raw(block.projection)), self._norm(block.projection.norm)
        return PADDED if block.conv1.down else IDENTITY, _at(self._joined(index - 1)), args.Norm()

    def _norm(self, norm: Norm) -> args.Norm:
        networks, parameters = self.networks, self.layout.parameters
        sums = self._kept(f"{norm.name}/sums") if self.training else None
        return args.Norm(
            sums=None if sums is None else _at(sums),
            moments=_at(self._moments() if self.training else networks.running, norm.start),
            gamma=_at(networks.parameters, parameters[f"{norm.name}.weight"].start),
            beta=_at(networks.parameters, parameters[f"{norm.name}.bias"].start),
            blocks=0 if sums is None else sums.shape[1],
            inverse=1 / (self.batch * norm.side**2),
        )

    # ---- backward

    def _backward(self) -> None:
        at = 0  # which of a side's three gradients is the one at the end of the block
        for index in reversed(range(len(self.layout.blocks))):
            block = self.layout.blocks[index]
            side = block.conv2.side
            outer, inner, free = (self._gradient(side, (at + i) % 3) for i in range(3))
            if block.projection is not None:
                self._project(block, index, outer)
            self._gradients("middle", block.conv2, outer, inner, self._raw(block.conv1))
            if block.conv1.down:
                at, free = 0, self._gradient(2 * side, 0)
            else:
                at = (at + 2) % 3
            kind = "down" if block.conv1.down else "join"
            residual, joins = self._residual(block, outer), block.projection is not None
            self._gradients(kind, block.conv1, inner, free, self._joined(index), residual, joins)
        self._stem_backward(self._gradient(32, at))

    def _residual(self, block: Block, outer: Tensor) -> tuple[Tensor, int, int]:
        """The shortcut's gradient: where it is, and for stride 2 channels from pixel to pixel and the first of them."""
        inputs = block.conv1.inputs
        if block.projection is not None:
            return self._kept(f"{block.projection.name}/gradient"), inputs, 0
        return outer, 2 * inputs, inputs // 2

    def _gradients(
        self,
        kind: str,
        conv: Conv,
        gradient: Tensor,
        result: Tensor,
        source: Tensor,
        residual: tuple[Tensor, int, int] | None = None,
        joins: bool = False,
    ) -> None:
        kernel = f"backward_{conv.outputs}_{kind}"
        networks, parameters, before = self.networks, self.layout.parameters, self._before(conv)
        tiles, per_unit, units = self._cut(kernel, conv.side)
        run, left = self._runs(kernel, units, RUNS[conv.outputs])
        sums = self._kept(f"{conv.norm.name}/gradient_sums")
        a = args.Backward(
            gradient=_at(gradient),
            output=_at(self._raw(conv)),
            input=_at(source),
            raw=_at(self._raw(before)),
            weights=_at(networks.packed_backward, conv.packed),
            input_gradient=_at(result),
            sums=_at(sums),
            input_sums=_at(self._gradient_sums(before.norm, units)),
            weight_sums=_at(self._weight_sums(f"{conv.name}.weight", units // run, left)),
            moments=_at(self._moments(), conv.norm.start),
            gamma=_at(networks.parameters, parameters[f"{conv.norm.name}.weight"].start),
            input_moments=_at(self._moments(), before.norm.start),
            input_gamma=_at(networks.parameters, parameters[f"{before.norm.name}.weight"].start),
            input_beta=_at(networks.parameters, parameters[f"{before.norm.name}.bias"].start),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            cut=args.Cut(tiles, per_unit, units, self.members, run),
            **self._common(),
        )
        if residual is not None:
            a.residual, a.residual_pitch, a.residual_offset = _at(residual[0]), residual[1], residual[2]
        self._add(kernel, units // run, a, joins=joins)

    def _project(self, block: Block, index: int, outer: Tensor) -> None:
        conv = block.projection
        assert conv is not None
        norm, networks = conv.norm, self.networks
        chunks = self.batch * conv.side**2 * conv.outputs // 8
        blocks = -(-chunks // SHORTCUT_CHUNKS)
        sums = self._gradient_sums(norm, blocks)
        first = args.ShortcutSums(
            gradient=_at(outer),
            output=_at(self._raw(conv)),
            moments=_at(self._moments(), norm.start),
            sums=_at(sums),
            channels=self.layout.channels,
            chunks=chunks,
            per_block=SHORTCUT_CHUNKS,
        )
        self._add(f"shortcut_sums_{conv.outputs}", blocks, first, aside=True)
        kernel = f"project_backward_{conv.outputs}"
        tiles, per_block, blocks = self._cut(kernel, conv.side)
        shape = (self.batch, conv.side, conv.side, conv.inputs)
        second = args.ProjectBackward(
            gradient=_at(outer),
            output=_at(self._raw(conv)),
            input=_at(self._joined(index)),
            weights=_at(networks.packed_backward, conv.packed),
            input_gradient=_at(self._buffer(f"{conv.name}/gradient", *shape, dtype=torch.bfloat16)),
            sums=_at(sums),
            moments=_at(self._moments(), norm.start),
            gamma=_at(networks.parameters, self.layout.parameters[f"{norm.name}.weight"].start),
            weight_sums=_at(self._weight_sums(f"{conv.name}.weight", blocks)),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            tiles=tiles,
            per_block=per_block,
            **self._common(),
        )
        self._add(kernel, blocks, second, aside=True)

    def _stem_backward(self, gradient: Tensor) -> None:
        stem, networks = self.layout.stem, self.networks
        sums = self._kept(f"{stem.norm.name}/gradient_sums")
        tiles, per_block, blocks = self._cut("stem_backward", 32)
        a = args.StemBackward(
            gradient=_at(gradient),
            output=_at(self._raw(stem)),
            input=_at(self._kept("input")),
            sums=_at(sums),
            moments=_at(self._moments(), stem.norm.start),
            gamma=_at(networks.parameters, self.layout.parameters[f"{stem.norm.name}.weight"].start),
            weight_sums=_at(self._weight_sums(f"{stem.name}.weight", blocks)),
            inverse=1 / (self.batch * 32**2),
            sum_blocks=sums.shape[1],
            tiles=tiles,
            per_block=per_block,
            **self._common(),
        )
        self._add("stem_backward", blocks, a)

    # ---- update

    def _update(self) -> None:
        networks, layout, shared = self.networks, self.layout, self.shared
        segments = (args.Segment * len(layout.parameters))()
        owners: list[int] = []
        for number, (name, parameter) in enumerate(layout.parameters.items()):
            found = self._sums[name]
            count, pitch = found.rows.shape[1:]
            segments[number] = args.Segment(
                rows=_at(found.rows, found.first),
                network_pitch=count * pitch,
                count=count,
                pitch=pitch,
                start=parameter.start,
                length=parameter.length,
                run=found.run,
            )
            owners += [number] * -(-parameter.length // ALIGNMENT)
        raw = torch.frombuffer(bytearray(segments), dtype=torch.uint8)
        self._segments = raw.to(shared.images.device)
        self._segment_of = torch.tensor(owners, dtype=torch.int32, device=shared.images.device)
        a = args.Update(
            parameters=_at(networks.parameters),
            velocity=_at(networks.velocity),
            mask=_at(networks.mask),
            active=_at(networks.active),
            forward=_at(networks.packed_forward),
            backward=_at(networks.packed_backward),
            forward_slot=_at(shared.forward_slots),
            backward_slot=_at(shared.backward_slots),
            segments=_at(self._segments),
            segment_of=_at(self._segment_of),
            rates=_at(networks.rates),
            step=_at(networks.step),
            momentum=shared.momentum,
            decay=shared.weight_decay,
            nesterov=int(shared.nesterov),
            steps=STEPS,
            count=layout.size,
            packed=layout.packed,
        )
        self._add("update", layout.size // ALIGNMENT, a)

    def _finish(self) -> None:
        networks, layout = self.networks, self.layout
        a = args.Finish(
            active=_at(networks.active),
            losses=_at(self._kept("losses")),
            table=_at(networks.table),
            step=_at(networks.step),
            training=int(self.training),
            channels=layout.channels,
            blocks=self._kept("losses").shape[1] // self.parts,
            parts=self.parts,
            steps=STEPS // self.parts,
        )
        if self.training:
            counts = [self.batch * norm.side**2 for norm in layout.norms.values() for _ in range(norm.channels)]
            values = torch.tensor([n / (n - 1) for n in counts])
            self._correction = values.to(self.shared.images.device)
            a.correction = _at(self._correction)
            a.moments, a.running = _at(self._moments()), _at(networks.running)
        self._add("finish", 1, a)

    # ---- memory

    def _add(
        self,
        kernel: str,
        blocks: int,
        a: ctypes.Structure,
        shared: int | None = None,
        aside: bool = False,
        joins: bool = False,
    ) -> None:
        found = self.kernels[kernel]
        launch = partial(found.launch, blocks, self.members, a, shared)
        self.steps.append(Step(kernel, launch, aside, joins))

    def _cut(self, kernel: str, side: int) -> tuple[int, int, int]:
        """Tiles of a network, tiles of a unit, and units: never a matter of how many networks there are."""
        pixels = self.kernels[kernel].pixels
        tiles, per_unit = self.batch * side**2 // pixels, UNITS[kernel] // pixels
        return tiles, per_unit, -(-tiles // per_unit)

    def _runs(self, kernel: str, units: int, wanted: int) -> tuple[int, int]:
        """How many units a block takes at least and adds up itself, and how many rows the update adds up first: where
        `wanted` units are to be added up before all others, one of the two is that many.
        """
        if units % wanted:
            return 1, 1
        resident = self.kernels[kernel].resident
        apart, together = (-(-(units // run) * self.all // resident) * run for run in (1, wanted))
        return (wanted, 1) if together <= BALANCED * apart else (1, wanted)

    def _common(self) -> dict[str, int]:
        return {"parameters": self.layout.size, "channels": self.layout.channels, "images": self.batch}

    def _before(self, conv: Conv) -> Conv:
        """The convolution whose norm the input of this one comes from."""
        chain = [self.layout.stem, *(c for block in self.layout.blocks for c in (block.conv1, block.conv2))]
        return chain[chain.index(conv) - 1]

    def _raw(self, conv: Conv) -> Tensor:
        shape = (self.batch, conv.side, conv.side, conv.outputs)
        return self._buffer(f"{conv.name}/raw", *shape, dtype=torch.bfloat16)

    def _joined(self, index: int) -> Tensor:
        conv = self._before(self.layout.blocks[index].conv1)
        shape = (self.batch, conv.side, conv.side, conv.outputs)
        return self._buffer(f"blocks.{index}/joined", *shape, dtype=torch.bfloat16)

    def _gradient(self, side: int, number: int) -> Tensor:
        """One of three gradients of activations of a side, used in turn."""
        return self._buffer(f"gradient/{side}/{number}", self.batch, side, side, 512 // side, dtype=torch.bfloat16)

    def _moments(self) -> Tensor:
        return self._buffer("moments", 2, self.layout.channels)

    def _norm_sums(self, norm: Norm, blocks: int) -> int | None:
        """Where a norm's sums go; nowhere with running statistics."""
        return _at(self._buffer(f"{norm.name}/sums", blocks, 2 * norm.channels)) if self.training else None

    def _gradient_sums(self, norm: Norm, blocks: int) -> Tensor:
        rows = self._buffer(f"{norm.name}/gradient_sums", blocks, 2 * norm.channels)
        self._sums[f"{norm.name}.bias"] = _Rows(rows)
        self._sums[f"{norm.name}.weight"] = _Rows(rows, norm.channels)
        return rows

    def _weight_sums(self, name: str, blocks: int, run: int = 1) -> Tensor:
        rows = self._buffer(f"{name}/sums", blocks, self.layout.parameters[name].length)
        self._sums[name] = _Rows(rows, run=run)
        return rows

    def _buffer(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """What is kept under this name for the networks of these slots, [members, *shape]."""
        if name not in self.buffers:
            self.buffers[name] = torch.zeros(self.all, *shape, dtype=dtype, device=self.shared.images.device)
        return self._kept(name)

    def _kept(self, name: str) -> Tensor:
        return self.buffers[name][self.slots]


def _at(tensor: Tensor, element: int = 0) -> int:
    """The address of a tensor's element."""
    return tensor.data_ptr() + element * tensor.element_size()
