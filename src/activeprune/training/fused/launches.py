"""The kernels of a step in order, each with its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import arguments as args
from .layout import ALIGNMENT, Block, Conv, Norm
from .memory import STEPS, Buffers, Networks, Rows, Shared
from .units import Cut

HEAD_IMAGES = 8  # a block of the last kernel
NONE, IDENTITY, PADDED, PROJECTED = range(4)  # enum Shortcut of the kernels
SHORTCUT_CHUNKS = 2048  # runs of 8 channels that a block of the shortcuts' sums adds

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


class Residual(NamedTuple):
    """A shortcut's gradient: where it is, for stride 2 channels from pixel to pixel and the first of them, and whether
    a kernel aside of the others computes it.
    """

    gradient: Tensor
    pitch: int
    offset: int
    aside: bool


class Launches:
    """The launches of a step of training or of evaluation for the networks of some slots.

    `buffers` hold the values between two kernels; in evaluation they may have room for several batches at once.
    """

    def __init__(self, shared: Shared, networks: Networks, buffers: Buffers, training: bool) -> None:
        self.shared, self.layout, self.kernels = shared, shared.layout, shared.kernels
        self.networks, self.members = networks, len(networks.step)
        self.buffers, self.batch, self.training = buffers, buffers.batch, training
        self.parts = buffers.batch // shared.recipe.batch
        self._sums: dict[str, Rows] = {}  # by parameter
        self.launches: list[Launch] = []
        self._forward()
        if training:
            self._backward()
            self._update()
        self._finish()

    # ---- forward

    def _forward(self) -> None:
        networks, layout, stem = self.networks, self.layout, self.layout.stem
        pixels, targets = self.buffers.pixels("input", 32, 4), self.buffers.targets()
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
        cut = self._cut("stem_forward", 32)
        first = args.StemForward(
            input=_at(pixels),
            weights=_at(networks.packed_forward, stem.packed),
            output=_at(self.buffers.raw(stem)),
            sums=self._norm_sums(stem.norm, cut.units),
            weight_pitch=layout.packed // 8,
            images=self.batch,
            tiles=cut.tiles,
            per_block=cut.per_unit,
        )
        self._add("stem_forward", cut.units, first)
        for index, block in enumerate(layout.blocks):
            kind = "project" if block.projection else "down" if block.conv1.down else "join"
            self._convolve(f"forward_{block.conv1.outputs}_{kind}", block.conv1, index)
            self._convolve(f"forward_{block.conv1.outputs}_middle", block.conv2, None)
        self._head()

    def _convolve(self, kernel: str, conv: Conv, index: int | None) -> None:
        """A 3x3 convolution: the first of block `index`, or the second of its block."""
        layout = self.layout
        before = layout.before(conv)
        cut = self._cut(kernel, conv.side)
        a = args.Forward(
            input=_at(self.buffers.raw(before)),
            weights=_at(self.networks.packed_forward, conv.packed),
            output=_at(self.buffers.raw(conv)),
            sums=self._norm_sums(conv.norm, cut.units),
            norm=self._norm(before.norm),
            weight_pitch=layout.packed // 8,
            cut=args.Cut(cut.tiles, cut.per_unit, cut.units, self.members, 1),
            **self._common(),
        )
        if index is not None:
            a.kind, a.shortcut, a.shortcut_norm = self._shortcut(index)
            a.joined = _at(self.buffers.joined(index))
            if projection := layout.blocks[index].projection:
                a.project_weights = _at(self.networks.packed_forward, projection.packed)
                a.projected = _at(self.buffers.raw(projection))
                a.projected_sums = self._norm_sums(projection.norm, cut.units)
        self._add(kernel, cut.units, a)

    def _head(self) -> None:
        layout, networks = self.layout, self.networks
        last = layout.blocks[-1].conv2
        blocks = self.batch // HEAD_IMAGES
        weight, bias = layout.parameters["fc.weight"], layout.parameters["fc.bias"]
        kind, shortcut, shortcut_norm = self._shortcut(len(layout.blocks))
        a = args.Head(
            output=_at(self.buffers.raw(last)),
            shortcut=shortcut,
            norm=self._norm(last.norm),
            shortcut_norm=shortcut_norm,
            weight=_at(networks.parameters, weight.start),
            bias=_at(networks.parameters, bias.start),
            targets=_at(self.buffers["targets"]),
            losses=_at(self.buffers.floats("losses", blocks, 2)),
            smoothing=self.shared.recipe.label_smoothing if self.training else 0.0,
            kind=kind,
            classes=layout.classes,
            **self._common(),
        )
        if self.training:
            a.gradient = _at(self.buffers.gradient(8, 0))
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
            return PROJECTED, _at(self.buffers.raw(block.projection)), self._norm(block.projection.norm)
        return PADDED if block.conv1.down else IDENTITY, _at(self.buffers.joined(index - 1)), args.Norm()

    def _norm(self, norm: Norm) -> args.Norm:
        networks, parameters = self.networks, self.layout.parameters
        sums = self.buffers[f"{norm.name}/sums"] if self.training else None
        return args.Norm(
            sums=None if sums is None else _at(sums),
            moments=_at(self.buffers.moments() if self.training else networks.running, norm.start),
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
            outer, inner, free = (self.buffers.gradient(side, (at + i) % 3) for i in range(3))
            if block.projection is not None:
                self._project(block, index, outer)
            self._gradients(block.conv2, outer, inner, self.buffers.raw(block.conv1))
            if block.conv1.down:
                at, free = 0, self.buffers.gradient(2 * side, 0)
            else:
                at = (at + 2) % 3
            self._gradients(block.conv1, inner, free, self.buffers.joined(index), self._residual(block, outer))
        self._stem_backward(self.buffers.gradient(32, at))

    def _residual(self, block: Block, outer: Tensor) -> Residual:
        inputs = block.conv1.inputs
        if block.projection is not None:
            return Residual(self.buffers[f"{block.projection.name}/gradient"], inputs, 0, aside=True)
        return Residual(outer, 2 * inputs, inputs // 2, aside=False)

    def _gradients(
        self, conv: Conv, gradient: Tensor, result: Tensor, source: Tensor, residual: Residual | None = None
    ) -> None:
        """Of a convolution: with a residual the first of its block, else the second."""
        kind = "middle" if residual is None else "down" if conv.down else "join"
        kernel = f"backward_{conv.outputs}_{kind}"
        networks, parameters, before = self.networks, self.layout.parameters, self.layout.before(conv)
        cut = self._cut(kernel, conv.side)
        run, left = cut.runs(self.kernels[kernel], self.buffers.count)
        sums = self.buffers[f"{conv.norm.name}/gradient_sums"]
        a = args.Backward(
            gradient=_at(gradient),
            output=_at(self.buffers.raw(conv)),
            input=_at(source),
            raw=_at(self.buffers.raw(before)),
            weights=_at(networks.packed_backward, conv.packed),
            input_gradient=_at(result),
            sums=_at(sums),
            input_sums=_at(self._gradient_sums(before.norm, cut.units)),
            weight_sums=_at(self._weight_sums(f"{conv.name}.weight", cut.units // run, left)),
            moments=_at(self.buffers.moments(), conv.norm.start),
            gamma=_at(networks.parameters, parameters[f"{conv.norm.name}.weight"].start),
            input_moments=_at(self.buffers.moments(), before.norm.start),
            input_gamma=_at(networks.parameters, parameters[f"{before.norm.name}.weight"].start),
            input_beta=_at(networks.parameters, parameters[f"{before.norm.name}.bias"].start),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            cut=args.Cut(cut.tiles, cut.per_unit, cut.units, self.members, run),
            **self._common(),
        )
        if residual is not None:
            a.residual, a.residual_pitch, a.residual_offset = _at(residual.gradient), residual.pitch, residual.offset
        joins = residual is not None and residual.aside
        self._add(kernel, cut.units // run, a, way="joining" if joins else "next")

    def _project(self, block: Block, index: int, outer: Tensor) -> None:
        conv = block.projection
        assert conv is not None
        norm, networks = conv.norm, self.networks
        chunks = self.batch * conv.side**2 * conv.outputs // 8
        blocks = -(-chunks // SHORTCUT_CHUNKS)
        sums = self._gradient_sums(norm, blocks)
        first = args.ShortcutSums(
            gradient=_at(outer),
            output=_at(self.buffers.raw(conv)),
            moments=_at(self.buffers.moments(), norm.start),
            sums=_at(sums),
            channels=self.layout.channels,
            chunks=chunks,
            per_block=SHORTCUT_CHUNKS,
        )
        self._add(f"shortcut_sums_{conv.outputs}", blocks, first, way="aside")
        kernel = f"project_backward_{conv.outputs}"
        cut = self._cut(kernel, conv.side)
        second = args.ProjectBackward(
            gradient=_at(outer),
            output=_at(self.buffers.raw(conv)),
            input=_at(self.buffers.joined(index)),
            weights=_at(networks.packed_backward, conv.packed),
            input_gradient=_at(self.buffers.pixels(f"{conv.name}/gradient", conv.side, conv.inputs)),
            sums=_at(sums),
            moments=_at(self.buffers.moments(), norm.start),
            gamma=_at(networks.parameters, self.layout.parameters[f"{norm.name}.weight"].start),
            weight_sums=_at(self._weight_sums(f"{conv.name}.weight", cut.units)),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            tiles=cut.tiles,
            per_block=cut.per_unit,
            **self._common(),
        )
        self._add(kernel, cut.units, second, way="aside")

    def _stem_backward(self, gradient: Tensor) -> None:
        stem, networks = self.layout.stem, self.networks
        sums = self.buffers[f"{stem.norm.name}/gradient_sums"]
        cut = self._cut("stem_backward", 32)
        a = args.StemBackward(
            gradient=_at(gradient),
            output=_at(self.buffers.raw(stem)),
            input=_at(self.buffers["input"]),
            sums=_at(sums),
            moments=_at(self.buffers.moments(), stem.norm.start),
            gamma=_at(networks.parameters, self.layout.parameters[f"{stem.norm.name}.weight"].start),
            weight_sums=_at(self._weight_sums(f"{stem.name}.weight", cut.units)),
            inverse=1 / (self.batch * 32**2),
            sum_blocks=sums.shape[1],
            tiles=cut.tiles,
            per_block=cut.per_unit,
            **self._common(),
        )
        self._add("stem_backward", cut.units, a)

    # ---- update

    def _update(self) -> None:
        networks, layout, shared, recipe = self.networks, self.layout, self.shared, self.shared.recipe
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
            momentum=recipe.momentum,
            decay=recipe.weight_decay,
            nesterov=int(recipe.nesterov),
            steps=STEPS,
            count=layout.size,
            packed=layout.packed,
        )
        self._add("update", layout.size // ALIGNMENT, a)

    def _finish(self) -> None:
        networks, layout = self.networks, self.layout
        a = args.Finish(
            active=_at(networks.active),
            losses=_at(self.buffers["losses"]),
            table=_at(networks.table),
            step=_at(networks.step),
            training=int(self.training),
            channels=layout.channels,
            blocks=self.buffers["losses"].shape[1] // self.parts,
            parts=self.parts,
            steps=STEPS // self.parts,
        )
        if self.training:
            counts = [self.batch * norm.side**2 for norm in layout.norms.values() for _ in range(norm.channels)]
            values = torch.tensor([n / (n - 1) for n in counts])
            self._correction = values.to(self.shared.images.device)
            a.correction = _at(self._correction)
            a.moments, a.running = _at(self.buffers.moments()), _at(networks.running)
        self._add("finish", 1, a)

    # ---- common to all

    def _add(self, kernel: str, blocks: int, a: ctypes.Structure, shared: int | None = None, way: Way = "next") -> None:
        launch = partial(self.kernels[kernel].launch, blocks, self.members, a, shared)
        self.launches.append(Launch(kernel, launch, way))

    def _cut(self, kernel: str, side: int) -> Cut:
        return Cut.of(self.kernels[kernel], self.batch * side**2)

    def _common(self) -> dict[str, int]:
        return {"parameters": self.layout.size, "channels": self.layout.channels, "images": self.batch}

    def _norm_sums(self, norm: Norm, rows: int) -> int | None:
        """Where a norm's sums go; nowhere with running statistics."""
        return _at(self.buffers.norm_sums(norm, rows)) if self.training else None

    def _gradient_sums(self, norm: Norm, count: int) -> Tensor:
        rows = self.buffers.gradient_sums(norm, count)
        self._sums[f"{norm.name}.bias"] = Rows(rows)
        self._sums[f"{norm.name}.weight"] = Rows(rows, norm.channels)
        return rows

    def _weight_sums(self, name: str, count: int, run: int = 1) -> Tensor:
        rows = self.buffers.weight_sums(name, count)
        self._sums[name] = Rows(rows, run=run)
        return rows


def _at(tensor: Tensor, element: int = 0) -> int:
    """The address of a tensor's element."""
    return tensor.data_ptr() + element * tensor.element_size()
