"""K residual networks for small images, trained at once: one kernel a layer for all, one CUDA graph a step.

What a network computes depends on its own start, data and settings alone, to the last bit: not on K, not on its slot
and not on its neighbours, active, finished or diverged.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from . import arguments as args
from .compiling import kernels
from .layout import ALIGNMENT, MOMENTUM, Block, Conv, Layout, Norm, Shortcut, State

Augmentation = Literal["none", "crop", "crop_flip"]

STEPS = 512  # that tables of order, crops, rates and losses have room for; more are done in several goes
MOST_IMAGES = 1 << 22  # a row of images, crop and flip are one int32
MOST_CLASSES = 256
HEAD_IMAGES = 8  # a block of the last kernel
NONE, IDENTITY, PADDED, PROJECTED = range(4)  # enum Shortcut of the kernels

# Tiles of a unit of work, in the order of a step. Part of the numbers' definition, because a unit is what sums are cut
# into. Measured on an H200: more tiles are faster for many networks, fewer for one (half of the GPU has nothing to do).
TILES = {
    "stem_forward": 4,
    "forward_16_join": 4,
    "forward_16_middle": 4,
    "forward_32_down": 4,
    "forward_32_project": 4,
    "forward_32_join": 2,
    "forward_32_middle": 2,
    "forward_64_down": 2,
    "forward_64_project": 2,
    "forward_64_join": 1,
    "forward_64_middle": 1,
    "backward_64_middle": 2,
    "backward_64_join": 2,
    "backward_64_down": 2,
    "project_backward_64": 4,
    "backward_32_middle": 4,
    "backward_32_join": 4,
    "backward_32_down": 4,
    "project_backward_32": 4,
    "backward_16_middle": 4,
    "backward_16_join": 4,
    "stem_backward": 4,
}
SHORTCUT_CHUNKS = 2048  # runs of 8 channels that a block of the shortcuts' sums adds


@dataclass(frozen=True)
class Step:
    """A kernel's launch: `aside` of the others, on a stream of its own, until one that `joins` needs its result."""

    kernel: str
    launch: Callable[[], None]
    aside: bool = False
    joins: bool = False


def why_not(depth: int, image: tuple[int, ...], batch: int, classes: int, augment: str, images: int) -> str | None:
    """What of this the engine cannot do, or None. `image` is the shape of one image, `images` is how many there are.

    >>> why_not(20, (3, 32, 32), 128, 10, "crop_flip", 60_000)
    >>> why_not(20, (3, 32, 32), 100, 10, "crop_flip", 60_000)
    'batch = 100: the fused engine needs a multiple of 8'
    """
    if depth < 8 or (depth - 2) % 6:
        return f"depth = {depth}: the fused engine has residual networks of 8, 14, 20, ... layers"
    if tuple(image) != (3, 32, 32):
        return f"images of {tuple(image)}: the fused engine takes 3x32x32"
    if batch < 8 or batch % 8:
        return f"batch = {batch}: the fused engine needs a multiple of 8"
    if not 1 <= classes <= MOST_CLASSES:
        return f"{classes} classes: the fused engine has 1 to {MOST_CLASSES}"
    if augment not in ("none", "crop", "crop_flip"):
        return f"augment = {augment!r}: the fused engine has none, crop and crop_flip"
    if images > MOST_IMAGES:
        return f"{images} images: the fused engine takes {MOST_IMAGES} at most"
    return None


class FusedResNets:
    """K = `members` networks in training, each in its slot; `images` uint8 [N, 3, 32, 32] and `labels` int64 [N] on
    the GPU serve them all, and a batch is `batch` rows of them.

    Raises `EngineUnavailable` where there is no GPU that can, `ValueError` for what `why_not` names.
    """

    def __init__(
        self,
        depth: int,
        shortcut: Shortcut,
        classes: int,
        images: Tensor,
        labels: Tensor,
        *,
        members: int,
        batch: int = 128,
        in_channels: int = 3,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        label_smoothing: float = 0.0,
        augment: Augmentation = "crop_flip",
    ) -> None:
        shape = (in_channels, *images.shape[2:])
        if reason := why_not(depth, shape, batch, classes, augment, len(images)):
            raise ValueError(reason)
        if images.dtype != torch.uint8 or images.shape[1] != in_channels or len(labels) != len(images):
            found = f"{images.dtype} {tuple(images.shape)}, and {len(labels)} labels"
            raise ValueError(f"bytes [N, {in_channels}, 32, 32] and N labels are needed, not {found}")
        self.device = images.device
        self.members, self.batch, self.augment = members, batch, augment
        self.layout = Layout(depth, shortcut, classes)
        self._kernels = kernels(self.device)
        self._images, self._labels = images.contiguous(), labels.to(torch.int64).contiguous()
        self._momentum, self._nesterov, self._decay, self._smoothing = momentum, nesterov, weight_decay, label_smoothing

        k, layout = members, self.layout
        self.parameters = self._zeros(k, layout.size)
        self.velocity = self._zeros(k, layout.size)
        self.running = self._zeros(k, 2, layout.channels)
        self._mask = self._zeros(k, layout.size, dtype=torch.uint8)
        self._packed_forward = self._zeros(k, layout.packed, dtype=torch.bfloat16)
        self._packed_backward = self._zeros(k, layout.packed, dtype=torch.bfloat16)
        self._scale, self._shift = self._zeros(k, 4), self._zeros(k, 4)
        self._active = self._zeros(k, dtype=torch.uint8)
        self.batches = self._zeros(k, dtype=torch.int64)
        self._codes = self._zeros(k, STEPS, batch, dtype=torch.int32)
        self._rates = self._zeros(k, STEPS)
        self._table = self._zeros(k, STEPS, 2)  # loss and right answers of a step, both summed
        self._step = self._zeros(k, dtype=torch.int32)
        self._forward_slots = layout.forward_slots.to(self.device)
        self._backward_slots = layout.backward_slots.to(self.device)

        plan = _Plan(self)
        self.buffers = plan.buffers
        self._training, self._evaluation = plan.training, plan.evaluation
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}

    def place(
        self,
        slot: int,
        state: Mapping[str, Tensor],
        masks: Mapping[str, Tensor] | None,
        momentum: Mapping[str, Tensor] | None,
        scale: Tensor,
        shift: Tensor,
    ) -> None:
        """Puts a network into a slot: its state, masks by weight name, momentum by "parameter/momentum_buffer", and
        its normalisation, bytes · scale + shift for each channel. Pruned weights and their momentum become 0.
        """
        layout = self.layout
        layout.check(state)
        mask = layout.mask_row(masks)
        pruned = mask == 0
        self._mask[slot] = mask.to(self.device)
        self.parameters[slot] = layout.row(state).masked_fill_(pruned, 0).to(self.device)
        self.velocity[slot] = layout.row(momentum or {}, MOMENTUM).masked_fill_(pruned, 0).to(self.device)
        self.running[slot] = layout.running(state).to(self.device)
        self.batches[slot] = int(state[f"{layout.stem.norm.name}.num_batches_tracked"])
        self._scale[slot, :3] = scale.reshape(3).to(self.device)
        self._shift[slot, :3] = shift.reshape(3).to(self.device)
        for packed, slots in (
            (self._packed_forward, self._forward_slots),
            (self._packed_backward, self._backward_slots),
        ):
            used = slots >= 0
            packed[slot, slots[used].long()] = self.parameters[slot, used].bfloat16()

    def train(self, order: Tensor, shift: Tensor, flip: Tensor, rates: Tensor, active: Tensor) -> tuple[Tensor, Tensor]:
        """S steps of all active networks: `order` int [K, S, B] are rows of the images, `shift` int [K, S, B, 2] and
        `flip` bool [K, S, B] say how each is augmented (as in `data.augmented`), `rates` [K, S], `active` bool [K].

        Returns loss and number of right answers of each step, [K, S], on the device; nothing waits for it.
        A network that is not active stays as it is, and its results are 0. Rows and labels are not checked.
        """
        active = active.to(self.device, torch.bool, non_blocking=True)
        self._active.copy_(active)
        self.batches += active * order.shape[1]
        codes = self._code(order, shift, flip) * active[:, None, None]
        table = self._run(codes, rates.to(self.device, torch.float32, non_blocking=True))
        table = table.masked_fill_(~active[:, None, None], 0)
        return table[..., 0] / self.batch, table[..., 1].long()

    def evaluate(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss, float64 [K], and number of right answers, int64 [K], of `rows` int [K, M] of the images, with
        running statistics, without augmentation and label smoothing; on the device.
        """
        count = rows.shape[1]
        steps = -(-count // self.batch)
        codes = torch.full((self.members, steps * self.batch), -1, dtype=torch.int32, device=self.device)
        codes[:, :count] = self._code(rows)
        table = self._run(codes.view(self.members, steps, self.batch), None)
        return table[..., 0].double().sum(1), table[..., 1].long().sum(1)

    def state(self, slot: int) -> State:
        """A network's `state_dict`, on the CPU; waits for the device."""
        return self.layout.state(self.parameters[slot].cpu(), self.running[slot].cpu(), int(self.batches[slot]))

    def momentum(self, slot: int) -> State:
        """A network's momentum by "parameter/momentum_buffer", on the CPU; waits for the device."""
        return self.layout.tensors(self.velocity[slot].cpu(), MOMENTUM)

    def _code(self, rows: Tensor, shift: Tensor | None = None, flip: Tensor | None = None) -> Tensor:
        """Row, crop and flip of each image as one int32: row << 9 | flip << 8 | down << 4 | right."""
        code = rows.to(self.device, torch.int32, non_blocking=True) << 9
        if shift is None or self.augment == "none":
            return code | 4 << 4 | 4
        moved = shift.to(self.device, torch.int32, non_blocking=True)
        code = code | moved[..., 0] << 4 | moved[..., 1]
        if flip is None or self.augment == "crop":
            return code
        return code | flip.to(self.device, torch.int32, non_blocking=True) << 8

    def _run(self, codes: Tensor, rates: Tensor | None) -> Tensor:
        """Replays a step for every [K, B] of `codes`, in training where there are rates; the steps' [K, S, 2]."""
        graph = self._graph(rates is not None)
        steps = codes.shape[1]
        table = torch.empty(self.members, steps, 2, device=self.device)
        for first in range(0, steps, STEPS):
            part = slice(first, min(first + STEPS, steps))
            count = part.stop - part.start
            self._codes[:, :count] = codes[:, part]
            if rates is not None:
                self._rates[:, :count] = rates[:, part]
            self._step.zero_()
            for _ in range(count):
                graph.replay()
            table[:, part] = self._table[:, :count]
        return table

    def _graph(self, training: bool) -> torch.cuda.CUDAGraph:
        if training not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(self.device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._launch(self._training if training else self._evaluation)
            self._graphs[training] = graph
        return self._graphs[training]

    def _launch(self, steps: list[Step]) -> None:
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        for step in steps:
            if step.aside:
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    step.launch()
                continue
            if step.joins:
                main.wait_stream(side)
            step.launch()

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)


class _Plan:
    """The launches of a step, with the memory between them.

    `buffers` holds every intermediate value by name: "conv/raw" the output of a convolution, "blocks.0/joined" a
    block's input, "norm/sums" and "norm/gradient_sums" rows of partial sums, "conv/weight_sums", and so on.
    """

    def __init__(self, engine: FusedResNets) -> None:
        self.engine, self.layout = engine, engine.layout
        self.members, self.batch = engine.members, engine.batch
        self.buffers: dict[str, Tensor] = {}
        self._sums: dict[str, tuple[Tensor, int, int, int]] = {}  # by parameter: rows, first float, pitch, count
        self._training = True
        self.training: list[Step] = []
        self._forward(self.training)
        self._backward(self.training)
        self._update(self.training)
        self._finish(self.training)
        self._training = False
        self.evaluation: list[Step] = []
        self._forward(self.evaluation)
        self._finish(self.evaluation)

    # ---- forward

    def _forward(self, steps: list[Step]) -> None:
        engine, layout, stem = self.engine, self.layout, self.layout.stem
        pixels = self._buffer("input", self.batch, 32, 32, 4, dtype=torch.bfloat16)
        targets = self._buffer("targets", self.batch, dtype=torch.int32)
        gather = args.Gather(
            images=_at(engine._images),
            labels=_at(engine._labels),
            codes=_at(engine._codes),
            step=_at(engine._step),
            scale=_at(engine._scale),
            shift=_at(engine._shift),
            output=_at(pixels),
            targets=_at(targets),
            steps=STEPS,
            batch=self.batch,
        )
        self._add(steps, "gather", self.batch, gather)
        tiles, per_block, blocks = self._cut("stem_forward", 32)
        first = args.StemForward(
            input=_at(pixels),
            weights=_at(engine._packed_forward, stem.packed),
            output=_at(self._raw(stem)),
            sums=_at(self._rows(f"{stem.norm.name}/sums", blocks, 2 * stem.outputs)),
            weight_pitch=layout.packed // 8,
            images=self.batch,
            tiles=tiles,
            per_block=per_block,
        )
        self._add(steps, "stem_forward", blocks, first)
        for index, block in enumerate(layout.blocks):
            kind = "project" if block.projection else "down" if block.conv1.down else "join"
            self._convolve(steps, f"forward_{block.conv1.outputs}_{kind}", block.conv1, index)
            self._convolve(steps, f"forward_{block.conv1.outputs}_middle", block.conv2, None)
        self._head(steps)

    def _convolve(self, steps: list[Step], kernel: str, conv: Conv, index: int | None) -> None:
        """A 3x3 convolution: the first of block `index`, or the second of its block."""
        layout = self.layout
        before = self._before(conv)
        tiles, per_block, blocks = self._cut(kernel, conv.side)
        rows = 2 * conv.outputs
        a = args.Forward(
            input=_at(self._raw(before)),
            weights=_at(self.engine._packed_forward, conv.packed),
            output=_at(self._raw(conv)),
            sums=_at(self._rows(f"{conv.norm.name}/sums", blocks, rows)),
            norm=self._norm(before.norm),
            weight_pitch=layout.packed // 8,
            cut=args.Cut(tiles, per_block, blocks, self.members),
            **self._common(),
        )
        if index is not None:
            a.kind, a.shortcut, a.shortcut_norm = self._shortcut(index)
            a.joined = _at(self._joined(index))
            if projection := layout.blocks[index].projection:
                a.project_weights = _at(self.engine._packed_forward, projection.packed)
                a.projected = _at(self._raw(projection))
                a.projected_sums = _at(self._rows(f"{projection.norm.name}/sums", blocks, rows))
        self._add(steps, kernel, blocks, a)

    def _head(self, steps: list[Step]) -> None:
        layout, engine = self.layout, self.engine
        last = layout.blocks[-1].conv2
        blocks = self.batch // HEAD_IMAGES
        weight, bias = layout.parameters["fc.weight"], layout.parameters["fc.bias"]
        kind, shortcut, shortcut_norm = self._shortcut(len(layout.blocks))
        a = args.Head(
            output=_at(self._raw(last)),
            shortcut=shortcut,
            gradient=_at(self._gradient(8, 0)),
            norm=self._norm(last.norm),
            shortcut_norm=shortcut_norm,
            weight=_at(engine.parameters, weight.start),
            bias=_at(engine.parameters, bias.start),
            targets=_at(self.buffers["targets"]),
            sums=_at(self._gradient_sums(last.norm, blocks)),
            weight_sums=_at(self._weight_sums("fc.weight", blocks)),
            bias_sums=_at(self._weight_sums("fc.bias", blocks)),
            losses=_at(self._rows("losses", blocks, 2)),
            smoothing=engine._smoothing if self._training else 0.0,
            kind=kind,
            classes=layout.classes,
            **self._common(),
        )
        self._add(steps, "head", blocks, a, 4 * (256 + 9 * 128 + 8 * 64 + 8 * layout.classes + 16))

    def _shortcut(self, index: int) -> tuple[int, int | None, args.Norm]:
        """What is added where block `index` begins: its kind, its address, and a projection's norm."""
        if not index:
            return NONE, None, args.Norm()
        block = self.layout.blocks[index - 1]
        if block.projection is not None:
            return PROJECTED, _at(self._raw(block.projection)), self._norm(block.projection.norm)
        return PADDED if block.conv1.down else IDENTITY, _at(self._joined(index - 1)), args.Norm()

    def _norm(self, norm: Norm) -> args.Norm:
        engine, parameters = self.engine, self.layout.parameters
        sums = self.buffers[f"{norm.name}/sums"]
        moments = self._moments() if self._training else engine.running
        return args.Norm(
            sums=_at(sums),
            moments=_at(moments, norm.start),
            gamma=_at(engine.parameters, parameters[f"{norm.name}.weight"].start),
            beta=_at(engine.parameters, parameters[f"{norm.name}.bias"].start),
            blocks=sums.shape[1] if self._training else 0,
            inverse=1 / (self.batch * norm.side**2),
        )

    # ---- backward

    def _backward(self, steps: list[Step]) -> None:
        at = 0  # which of a side's three gradients is the one at the end of the block
        for index in reversed(range(len(self.layout.blocks))):
            block = self.layout.blocks[index]
            side = block.conv2.side
            outer, inner, free = (self._gradient(side, (at + i) % 3) for i in range(3))
            if block.projection is not None:
                self._project(steps, block, index, outer)
            self._gradients(steps, "middle", block.conv2, outer, inner, self._raw(block.conv1))
            if block.conv1.down:
                at, free = 0, self._gradient(2 * side, 0)
            else:
                at = (at + 2) % 3
            kind = "down" if block.conv1.down else "join"
            residual, joins = self._residual(block, outer), block.projection is not None
            self._gradients(steps, kind, block.conv1, inner, free, self._joined(index), residual, joins)
        self._stem_backward(steps, self._gradient(32, at))

    def _residual(self, block: Block, outer: Tensor) -> tuple[Tensor, int, int]:
        """The shortcut's gradient: where it is, and for stride 2 channels from pixel to pixel and the first of them."""
        inputs = block.conv1.inputs
        if block.projection is not None:
            return self.buffers[f"{block.projection.name}/gradient"], inputs, 0
        return outer, 2 * inputs, inputs // 2

    def _gradients(
        self,
        steps: list[Step],
        kind: str,
        conv: Conv,
        gradient: Tensor,
        result: Tensor,
        source: Tensor,
        residual: tuple[Tensor, int, int] | None = None,
        joins: bool = False,
    ) -> None:
        kernel = f"backward_{conv.outputs}_{kind}"
        engine, parameters, before = self.engine, self.layout.parameters, self._before(conv)
        tiles, per_block, blocks = self._cut(kernel, conv.side)
        sums = self.buffers[f"{conv.norm.name}/gradient_sums"]
        a = args.Backward(
            gradient=_at(gradient),
            output=_at(self._raw(conv)),
            input=_at(source),
            raw=_at(self._raw(before)),
            weights=_at(engine._packed_backward, conv.packed),
            input_gradient=_at(result),
            sums=_at(sums),
            input_sums=_at(self._gradient_sums(before.norm, blocks)),
            weight_sums=_at(self._weight_sums(f"{conv.name}.weight", blocks)),
            moments=_at(self._moments(), conv.norm.start),
            gamma=_at(engine.parameters, parameters[f"{conv.norm.name}.weight"].start),
            input_moments=_at(self._moments(), before.norm.start),
            input_gamma=_at(engine.parameters, parameters[f"{before.norm.name}.weight"].start),
            input_beta=_at(engine.parameters, parameters[f"{before.norm.name}.bias"].start),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            cut=args.Cut(tiles, per_block, blocks, self.members),
            **self._common(),
        )
        if residual is not None:
            a.residual, a.residual_pitch, a.residual_offset = _at(residual[0]), residual[1], residual[2]
        self._add(steps, kernel, blocks, a, joins=joins)

    def _project(self, steps: list[Step], block: Block, index: int, outer: Tensor) -> None:
        conv = block.projection
        assert conv is not None
        norm, engine = conv.norm, self.engine
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
        self._add(steps, f"shortcut_sums_{conv.outputs}", blocks, first, aside=True)
        kernel = f"project_backward_{conv.outputs}"
        tiles, per_block, blocks = self._cut(kernel, conv.side)
        shape = (self.batch, conv.side, conv.side, conv.inputs)
        second = args.ProjectBackward(
            gradient=_at(outer),
            output=_at(self._raw(conv)),
            input=_at(self._joined(index)),
            weights=_at(engine._packed_backward, conv.packed),
            input_gradient=_at(self._buffer(f"{conv.name}/gradient", *shape, dtype=torch.bfloat16)),
            sums=_at(sums),
            moments=_at(self._moments(), norm.start),
            gamma=_at(engine.parameters, self.layout.parameters[f"{norm.name}.weight"].start),
            weight_sums=_at(self._weight_sums(f"{conv.name}.weight", blocks)),
            inverse=1 / (self.batch * conv.side**2),
            sum_blocks=sums.shape[1],
            weight_pitch=self.layout.packed // 8,
            tiles=tiles,
            per_block=per_block,
            **self._common(),
        )
        self._add(steps, kernel, blocks, second, aside=True)

    def _stem_backward(self, steps: list[Step], gradient: Tensor) -> None:
        stem, engine = self.layout.stem, self.engine
        sums = self.buffers[f"{stem.norm.name}/gradient_sums"]
        tiles, per_block, blocks = self._cut("stem_backward", 32)
        a = args.StemBackward(
            gradient=_at(gradient),
            output=_at(self._raw(stem)),
            input=_at(self.buffers["input"]),
            sums=_at(sums),
            moments=_at(self._moments(), stem.norm.start),
            gamma=_at(engine.parameters, self.layout.parameters[f"{stem.norm.name}.weight"].start),
            weight_sums=_at(self._weight_sums(f"{stem.name}.weight", blocks)),
            inverse=1 / (self.batch * 32**2),
            sum_blocks=sums.shape[1],
            tiles=tiles,
            per_block=per_block,
            **self._common(),
        )
        self._add(steps, "stem_backward", blocks, a)

    # ---- update

    def _update(self, steps: list[Step]) -> None:
        engine, layout = self.engine, self.layout
        segments = (args.Segment * len(layout.parameters))()
        owners: list[int] = []
        for number, (name, parameter) in enumerate(layout.parameters.items()):
            rows, first, pitch, count = self._sums[name]
            segments[number] = args.Segment(
                rows=_at(rows, first),
                network_pitch=count * pitch,
                count=count,
                pitch=pitch,
                start=parameter.start,
                length=parameter.length,
            )
            owners += [number] * -(-parameter.length // ALIGNMENT)
        raw = torch.frombuffer(bytearray(segments), dtype=torch.uint8)
        self.buffers["segments"] = raw.to(engine.device)
        self.buffers["segment_of"] = torch.tensor(owners, dtype=torch.int32, device=engine.device)
        a = args.Update(
            parameters=_at(engine.parameters),
            velocity=_at(engine.velocity),
            mask=_at(engine._mask),
            active=_at(engine._active),
            forward=_at(engine._packed_forward),
            backward=_at(engine._packed_backward),
            forward_slot=_at(engine._forward_slots),
            backward_slot=_at(engine._backward_slots),
            segments=_at(self.buffers["segments"]),
            segment_of=_at(self.buffers["segment_of"]),
            rates=_at(engine._rates),
            step=_at(engine._step),
            momentum=engine._momentum,
            decay=engine._decay,
            nesterov=int(engine._nesterov),
            steps=STEPS,
            count=layout.size,
            packed=layout.packed,
        )
        self._add(steps, "update", layout.size // ALIGNMENT, a)

    def _finish(self, steps: list[Step]) -> None:
        engine, layout = self.engine, self.layout
        if "correction" not in self.buffers:
            counts = [self.batch * norm.side**2 for norm in layout.norms.values() for _ in range(norm.channels)]
            values = torch.tensor([n / (n - 1) for n in counts])
            self.buffers["correction"] = values.to(engine.device)
        a = args.Finish(
            moments=_at(self._moments()),
            running=_at(engine.running),
            correction=_at(self.buffers["correction"]),
            active=_at(engine._active),
            losses=_at(self.buffers["losses"]),
            table=_at(engine._table),
            step=_at(engine._step),
            training=int(self._training),
            channels=layout.channels,
            blocks=self.buffers["losses"].shape[1],
            steps=STEPS,
        )
        self._add(steps, "finish", 1, a)

    # ---- memory

    def _add(
        self,
        steps: list[Step],
        kernel: str,
        blocks: int,
        a: ctypes.Structure,
        shared: int | None = None,
        aside: bool = False,
        joins: bool = False,
    ) -> None:
        found = self.engine._kernels[kernel]
        steps.append(Step(kernel, lambda: found.launch(blocks, self.members, a, shared), aside, joins))

    def _cut(self, kernel: str, side: int) -> tuple[int, int, int]:
        """Tiles of a network, tiles of a unit, and units: never a matter of how many networks there are."""
        tiles = self.batch * side**2 // self.engine._kernels[kernel].pixels
        return tiles, TILES[kernel], -(-tiles // TILES[kernel])

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

    def _gradient_sums(self, norm: Norm, blocks: int) -> Tensor:
        pitch = 2 * norm.channels
        rows = self._rows(f"{norm.name}/gradient_sums", blocks, pitch)
        self._sums[f"{norm.name}.bias"] = (rows, 0, pitch, blocks)
        self._sums[f"{norm.name}.weight"] = (rows, norm.channels, pitch, blocks)
        return rows

    def _weight_sums(self, name: str, blocks: int) -> Tensor:
        pitch = self.layout.parameters[name].length
        rows = self._rows(f"{name}/sums", blocks, pitch)
        self._sums[name] = (rows, 0, pitch, blocks)
        return rows

    def _rows(self, name: str, blocks: int, width: int) -> Tensor:
        return self._buffer(name, blocks, width)

    def _buffer(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer of this name for every network, [K, *shape]."""
        if name not in self.buffers:
            self.buffers[name] = torch.zeros(self.members, *shape, dtype=dtype, device=self.engine.device)
        return self.buffers[name]


def _at(tensor: Tensor, element: int = 0) -> int:
    """The address of a tensor's element."""
    return tensor.data_ptr() + element * tensor.element_size()
