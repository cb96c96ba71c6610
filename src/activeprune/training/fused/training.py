"""A step of training: forward, backward and the update, kernel by kernel."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import arguments as args
from .launches import Launches, at
from .layout import ALIGNMENT, Block, Conv, Norm
from .memory import STEPS, Buffers, Networks, Rows, Shared

SHORTCUT_CHUNKS = 2048  # runs of 8 channels that a block of the shortcuts' sums adds


class Residual(NamedTuple):
    """A shortcut's gradient: where it is, for stride 2 channels from pixel to pixel and the first of them, and whether
    a kernel aside of the others computes it.
    """

    gradient: Tensor
    pitch: int
    offset: int
    aside: bool


class TrainingStep(Launches):
    """The launches of a step of training, whose norms take the batch's own moments."""

    def __init__(self, shared: Shared, networks: Networks, buffers: Buffers) -> None:
        super().__init__(shared, networks, buffers)
        self._sums: dict[str, Rows] = {}  # by parameter
        self.gather()
        self.stem()
        for index in range(len(self.layout.blocks)):
            self.begin_block(index)
            self.end_block(index)
        self.head(self._head_gradients)
        self._backward()
        self._update()
        self.finish(self._running_statistics)

    @property
    def moments(self) -> Tensor:
        """Mean and variance of every norm's channels in this batch."""
        return self.buffers.moments()

    def room_for_sums(self, norm: Norm, rows: int) -> Tensor:
        """Where the partial sums go that a norm's moments are made of."""
        return self.buffers.norm_sums(norm, rows)

    def sums(self, norm: Norm) -> Tensor:
        """The same when they are there."""
        return self.buffers[f"{norm.name}/sums"]

    def _head_gradients(self, a: args.Head, blocks: int) -> None:
        a.smoothing = self.shared.recipe.label_smoothing
        a.gradient = at(self.buffers.gradient(8, 0))
        a.sums = at(self._gradient_sums(self.layout.blocks[-1].conv2.norm, blocks))
        a.weight_sums = at(self._weight_sums("fc.weight", blocks))
        a.bias_sums = at(self._weight_sums("fc.bias", blocks))

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
        cut = self.cut(kernel, conv.side)
        run, left = cut.runs(self.kernels[kernel], self.buffers.count)
        sums = self.buffers[f"{conv.norm.name}/gradient_sums"]
        a = args.Backward(
            gradient=at(gradient),
            output=at(self.buffers.raw(conv)),
            input=at(source),
            raw=at(self.buffers.raw(before)),
            weights=at(networks.packed_backward, conv.packed),
            input_gradient=at(result),
            sums=at(sums),
            input_sums=at(self._gradient_sums(before.norm, cut.units)),
            weight_sums=at(self._weight_sums(f"{conv.name}.weight", cut.units // run, left)),
            moments=at(self.moments, conv.norm.start),
            gamma=at(networks.parameters, parameters[f"{conv.norm.name}.weight"].start),
            input_moments=at(self.moments, before.norm.start),
            input_gamma=at(networks.parameters, parameters[f"{before.norm.name}.weight"].start),
            input_beta=at(networks.parameters, parameters[f"{before.norm.name}.bias"].start),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            cut=args.Cut(cut.tiles, cut.per_unit, cut.units, self.members, run),
            **self.common(),
        )
        if residual is not None:
            a.residual, a.residual_pitch, a.residual_offset = at(residual.gradient), residual.pitch, residual.offset
        joins = residual is not None and residual.aside
        self.add(kernel, cut.units // run, a, way="joining" if joins else "next")

    def _project(self, block: Block, index: int, outer: Tensor) -> None:
        conv = block.projection
        assert conv is not None
        norm, networks = conv.norm, self.networks
        chunks = self.batch * conv.side**2 * conv.outputs // 8
        blocks = -(-chunks // SHORTCUT_CHUNKS)
        sums = self._gradient_sums(norm, blocks)
        first = args.ShortcutSums(
            gradient=at(outer),
            output=at(self.buffers.raw(conv)),
            moments=at(self.moments, norm.start),
            sums=at(sums),
            channels=self.layout.channels,
            chunks=chunks,
            per_block=SHORTCUT_CHUNKS,
        )
        self.add(f"shortcut_sums_{conv.outputs}", blocks, first, way="aside")
        kernel = f"project_backward_{conv.outputs}"
        cut = self.cut(kernel, conv.side)
        second = args.ProjectBackward(
            gradient=at(outer),
            output=at(self.buffers.raw(conv)),
            input=at(self.buffers.joined(index)),
            weights=at(networks.packed_backward, conv.packed),
            input_gradient=at(self.buffers.pixels(f"{conv.name}/gradient", conv.side, conv.inputs)),
            sums=at(sums),
            moments=at(self.moments, norm.start),
            gamma=at(networks.parameters, self.layout.parameters[f"{norm.name}.weight"].start),
            weight_sums=at(self._weight_sums(f"{conv.name}.weight", cut.units)),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            tiles=cut.tiles,
            per_block=cut.per_unit,
            **self.common(),
        )
        self.add(kernel, cut.units, second, way="aside")

    def _stem_backward(self, gradient: Tensor) -> None:
        stem, networks = self.layout.stem, self.networks
        sums = self.buffers[f"{stem.norm.name}/gradient_sums"]
        cut = self.cut("stem_backward", 32)
        a = args.StemBackward(
            gradient=at(gradient),
            output=at(self.buffers.raw(stem)),
            input=at(self.buffers["input"]),
            sums=at(sums),
            moments=at(self.moments, stem.norm.start),
            gamma=at(networks.parameters, self.layout.parameters[f"{stem.norm.name}.weight"].start),
            weight_sums=at(self._weight_sums(f"{stem.name}.weight", cut.units)),
            inverse=1 / (self.batch * 32**2),
            sum_blocks=sums.shape[1],
            tiles=cut.tiles,
            per_block=cut.per_unit,
            **self.common(),
        )
        self.add("stem_backward", cut.units, a)

    def _update(self) -> None:
        networks, layout, shared, recipe = self.networks, self.layout, self.shared, self.shared.recipe
        segments = (args.Segment * len(layout.parameters))()
        owners: list[int] = []
        for number, (name, parameter) in enumerate(layout.parameters.items()):
            found = self._sums[name]
            count, pitch = found.rows.shape[1:]
            segments[number] = args.Segment(
                rows=at(found.rows, found.first),
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
            parameters=at(networks.parameters),
            velocity=at(networks.velocity),
            mask=at(networks.mask),
            active=at(networks.active),
            forward=at(networks.packed_forward),
            backward=at(networks.packed_backward),
            forward_slot=at(shared.forward_slots),
            backward_slot=at(shared.backward_slots),
            segments=at(self._segments),
            segment_of=at(self._segment_of),
            rates=at(networks.rates),
            step=at(networks.step),
            momentum=recipe.momentum,
            decay=recipe.weight_decay,
            nesterov=int(recipe.nesterov),
            steps=STEPS,
            count=layout.size,
            packed=layout.packed,
        )
        self.add("update", layout.size // ALIGNMENT, a)

    def _running_statistics(self, a: args.Finish) -> None:
        counts = [self.batch * norm.side**2 for norm in self.layout.norms.values() for _ in range(norm.channels)]
        self._correction = torch.tensor([n / (n - 1) for n in counts]).to(self.shared.images.device)
        a.training, a.correction = 1, at(self._correction)
        a.moments, a.running = at(self.moments), at(self.networks.running)

    def _gradient_sums(self, norm: Norm, count: int) -> Tensor:
        rows = self.buffers.gradient_sums(norm, count)
        self._sums[f"{norm.name}.bias"] = Rows(rows)
        self._sums[f"{norm.name}.weight"] = Rows(rows, norm.channels)
        return rows

    def _weight_sums(self, name: str, count: int, run: int = 1) -> Tensor:
        rows = self.buffers.weight_sums(name, count)
        self._sums[name] = Rows(rows, run=run)
        return rows
