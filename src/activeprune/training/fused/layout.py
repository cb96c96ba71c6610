"""What a residual network for small images is to the fused kernels: layers, one flat row of parameters, packed weights.

A flat row holds all parameters of a network, each tensor from a multiple of 256 on, so that 256 neighbours are always
of one tensor. Convolutions stand in it as their gradients come out of the kernels: 1x1 as [input, output]; the first
one as [row, column, input, output], as if it had four columns and four input channels (the rest are zeros that no
gradient reaches); the others in the order of the matrix instruction's results, see `Parameter.to_flat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from ...networks.cifar_resnet import Shortcut
from ..result import State

WIDTHS = (16, 32, 64)
SIDES = (32, 16, 8)
ALIGNMENT = 256
STEM = (3, 4, 4, 16)  # the first convolution as it stands in a row: rows, columns, inputs, outputs
MOMENTUM = "/momentum_buffer"


@dataclass(frozen=True)
class Norm:
    """A batch norm: its channels stand from `start` on among all channels; `side` is that of its input."""

    name: str
    channels: int
    side: int
    start: int


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor: its shape in torch, its shape in the flat row, and where it starts there."""

    name: str
    shape: tuple[int, ...]
    flat: tuple[int, ...]
    start: int

    @property
    def length(self) -> int:
        """Numbers in the flat row."""
        return prod(self.flat)

    def to_flat(self, tensor: Tensor) -> Tensor:
        """A tensor of torch's shape as it stands in a row.

        A 3x3 convolution stands there as [row, column, output / 8, input / 16, lane, 4]: a lane of the matrix
        instruction has inputs lane // 4 and 8 further, each for outputs 2 (lane % 4) and the next.
        """
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"{self.name} has the shape {tuple(tensor.shape)}: {self.shape} is needed")
        if len(self.shape) != 4:
            return tensor.reshape(-1)
        if self.flat == STEM:
            return torch.nn.functional.pad(tensor.permute(2, 3, 1, 0), (0, 0, 0, 1, 0, 1)).reshape(-1)
        outputs, inputs, height, width = self.shape
        if height == 1:
            return tensor.permute(2, 3, 1, 0).reshape(-1)
        parts = tensor.reshape(outputs // 8, 4, 2, inputs // 16, 2, 8, height, width)
        return parts.permute(6, 7, 0, 3, 5, 1, 4, 2).reshape(-1)

    def from_flat(self, row: Tensor) -> Tensor:
        """Its part of a row in torch's shape, a copy."""
        part = row[self.start : self.start + self.length]
        if len(self.shape) != 4:
            return part.view(self.shape).clone()
        outputs, inputs, height, width = self.shape
        if height == 1 or self.flat == STEM:
            part = part.view(self.flat)[:height, :width, :inputs, :outputs].permute(3, 2, 0, 1)
        else:
            part = part.view(height, width, outputs // 8, inputs // 16, 8, 4, 2, 2).permute(2, 5, 7, 3, 6, 4, 0, 1)
        return part.reshape(self.shape).clone(memory_format=torch.contiguous_format)


@dataclass(frozen=True)
class Conv:
    """A convolution and the norm behind it; `side` is that of its output, `packed` where its packed weights start."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    side: int
    norm: Norm
    weight: Parameter
    packed: int

    @property
    def down(self) -> bool:
        """Whether it halves the side."""
        return self.stride == 2


@dataclass(frozen=True)
class Block:
    """Two convolutions and a shortcut: `projection` where it is a convolution, else the identity or, if the side
    changes, every other pixel and channels of zeros.
    """

    conv1: Conv
    conv2: Conv
    projection: Conv | None


class Layout:
    """A network of depth 6n + 2, see the module."""

    def __init__(self, depth: int, shortcut: Shortcut, classes: int) -> None:
        self.depth, self.shortcut, self.classes = depth, shortcut, classes
        self.parameters: dict[str, Parameter] = {}
        self.norms: dict[str, Norm] = {}
        self.size = 0  # of a flat row
        self.packed = 0  # bf16 numbers of all packed weights
        self.channels = 0  # of all norms
        self.stem = self._conv("conv", "bn", 3, WIDTHS[0])
        self.blocks: list[Block] = []
        inputs = WIDTHS[0]
        for width in WIDTHS:
            for _ in range((depth - 2) // 6):
                name = f"blocks.{len(self.blocks)}"
                conv1 = self._conv(f"{name}.conv1", f"{name}.bn1", inputs, width)
                conv2 = self._conv(f"{name}.conv2", f"{name}.bn2", width, width)
                projection = None
                if conv1.down and shortcut == "conv":
                    projection = self._conv(f"{name}.shortcut.0", f"{name}.shortcut.1", inputs, width, kernel=1)
                self.blocks.append(Block(conv1, conv2, projection))
                inputs = width
        self._parameter("fc.weight", (classes, inputs))
        self._parameter("fc.bias", (classes,))

    @property
    def convolutions(self) -> list[Conv]:
        """All of them, in torch's order."""
        blocks = [conv for block in self.blocks for conv in (block.conv1, block.conv2, block.projection)]
        return [self.stem, *(conv for conv in blocks if conv is not None)]

    def before(self, conv: Conv) -> Conv:
        """The 3x3 convolution whose norm the input of this one comes from."""
        chain = [self.stem, *(conv for block in self.blocks for conv in (block.conv1, block.conv2))]
        return chain[chain.index(conv) - 1]

    def row(self, tensors: Mapping[str, Tensor], suffix: str = "", fill: float = 0.0) -> Tensor:
        """Tensors by parameter name (with `suffix`) as a flat row, float32 [size]; what is missing becomes `fill`."""
        flat = torch.zeros(self.size)
        for name, parameter in self.parameters.items():
            given = tensors.get(name + suffix)
            values = torch.full(parameter.shape, fill) if given is None else given.detach().to("cpu", torch.float32)
            flat[parameter.start : parameter.start + parameter.length] = parameter.to_flat(values)
        return flat

    def tensors(self, row: Tensor, suffix: str = "") -> State:
        """A flat row as tensors by parameter name (and `suffix`)."""
        return {name + suffix: parameter.from_flat(row) for name, parameter in self.parameters.items()}

    def mask_row(self, masks: Mapping[str, Tensor] | None) -> Tensor:
        """Masks by weight name as a flat row, uint8 [size]: 1 where a gradient counts. Padding has 0."""
        return self.row(masks or {}, fill=1.0).ne(0).to(torch.uint8)

    def running(self, state: Mapping[str, Tensor]) -> Tensor:
        """Running mean and variance of all norms, float32 [2, channels]."""
        parts = [
            torch.cat([state[f"{name}.running_{kind}"].detach().cpu().float() for name in self.norms])
            for kind in ("mean", "var")
        ]
        return torch.stack(parts)

    def state(self, row: Tensor, running: Tensor, batches: int) -> State:
        """A `state_dict` in torch's order, from a flat row, running statistics and the number of batches seen."""
        tensors = self.tensors(row)
        state: State = {}
        for conv in self.convolutions:
            norm = conv.norm
            part = slice(norm.start, norm.start + norm.channels)
            for name in (f"{conv.name}.weight", f"{norm.name}.weight", f"{norm.name}.bias"):
                state[name] = tensors[name]
            state[f"{norm.name}.running_mean"] = running[0, part].clone()
            state[f"{norm.name}.running_var"] = running[1, part].clone()
            state[f"{norm.name}.num_batches_tracked"] = torch.tensor(batches)
        return {**state, "fc.weight": tensors["fc.weight"], "fc.bias": tensors["fc.bias"]}

    def check(self, state: Mapping[str, Tensor]) -> None:
        """Refuses a state that is not one of this network."""
        wanted = {name: parameter.shape for name, parameter in self.parameters.items()}
        for norm in self.norms.values():
            wanted |= {f"{norm.name}.running_{kind}": (norm.channels,) for kind in ("mean", "var")}
            wanted[f"{norm.name}.num_batches_tracked"] = ()
        given = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if wrong := sorted({name for name, _ in wanted.items() ^ given.items()}):
            raise ValueError(f"the state is not one of this network: it differs in {', '.join(wrong[:3])}")

    @cached_property
    def forward_slots(self) -> Tensor:
        """For every number of a row, its place in the weights packed for the forward pass, or -1: int32 [size]."""
        slots = torch.full((self.size,), -1, dtype=torch.int32)
        for conv in self.convolutions:
            if conv is self.stem:
                _, k, n = fragments(1, prod(STEM[:3]), conv.outputs)
                places = conv.weight.start + k * conv.outputs + n
            else:
                tap, k, n = fragments(conv.kernel**2, conv.inputs, conv.outputs)
                places = self._places(conv)[n, k, tap]
            slots[places] = conv.packed + torch.arange(len(places), dtype=torch.int32)
        return slots

    @cached_property
    def backward_slots(self) -> Tensor:
        """The same for the input gradient, where inputs and outputs change places.

        Without stride that gradient is again a convolution, with its taps the other way round.
        """
        slots = torch.full((self.size,), -1, dtype=torch.int32)
        for conv in self.convolutions[1:]:
            taps = conv.kernel**2
            tap, k, n = fragments(taps, conv.outputs, conv.inputs)
            places = self._places(conv)[k, n, tap if conv.down else taps - 1 - tap]
            slots[places] = conv.packed + torch.arange(len(places), dtype=torch.int32)
        return slots

    @property
    def norm_slots(self) -> Tensor:
        """Where every channel's scale and shift stand in a row: int32 [2, channels]."""
        starts = [[self.parameters[f"{norm}.{kind}"].start for norm in self.norms] for kind in ("weight", "bias")]
        counts = torch.tensor([norm.channels for norm in self.norms.values()])
        within = torch.cat([torch.arange(norm.channels) for norm in self.norms.values()])
        return (torch.tensor(starts).repeat_interleave(counts, 1) + within).int()

    def _places(self, conv: Conv) -> Tensor:
        """Where each weight stands in a row: [outputs, inputs, taps]."""
        return conv.weight.from_flat(torch.arange(self.size)).flatten(2)

    def _conv(self, name: str, norm: str, inputs: int, outputs: int, kernel: int = 3) -> Conv:
        side, stride = SIDES[WIDTHS.index(outputs)], 2 if outputs == 2 * inputs else 1
        shape = (outputs, inputs, kernel, kernel)
        weight = self._parameter(f"{name}.weight", shape, STEM if name == "conv" else (kernel, kernel, inputs, outputs))
        self._parameter(f"{norm}.weight", (outputs,))
        self._parameter(f"{norm}.bias", (outputs,))
        self.norms[norm] = Norm(norm, outputs, side, self.channels)
        self.channels += outputs
        conv = Conv(name, inputs, outputs, kernel, stride, side, self.norms[norm], weight, self.packed)
        self.packed += weight.length
        return conv

    def _parameter(self, name: str, shape: tuple[int, ...], flat: tuple[int, ...] | None = None) -> Parameter:
        parameter = self.parameters[name] = Parameter(name, shape, flat or shape, self.size)
        self.size += -(-parameter.length // ALIGNMENT) * ALIGNMENT
        return parameter


def fragments(taps: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which (tap, input, output) stands at each place of weights packed as [tap][input / 16][output / 16][lane][8].

    Lane and last index are what `mma.m16n8k16` wants of its second operand, for two tiles of 8 outputs. Outputs are
    permuted so that a thread ends up with neighbouring channels: 4 of 16, or 8 of every 32.
    """
    sizes = (taps, inputs // 16, outputs // 16, 32, 8)
    tap, step, pair, lane, i = (index.reshape(-1) for index in torch.meshgrid(*map(torch.arange, sizes), indexing="ij"))
    k = step * 16 + lane % 4 * 2 + i % 2 + i % 4 // 2 * 8
    tile, column = 2 * pair + i // 4, lane // 4
    thread, odd = column // 2, column % 2
    if outputs == 16:
        return tap, k, 4 * thread + 2 * tile + odd
    return tap, k, tile // 4 * 32 + 8 * thread + tile % 4 * 2 + odd
