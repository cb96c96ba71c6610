"""What K networks in training keep on the GPU: their own state, and every value between the kernels of a step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from .compiling import Module
from .layout import Conv, Layout, Norm

Augmentation = Literal["none", "crop", "crop_flip"]

STEPS = 512  # that tables of order, crops, rates and losses have room for; more are done in several goes


@dataclass(frozen=True)
class Recipe:
    """How the networks are trained: what the kernels read of a `Training`."""

    batch: int = 128
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    augment: Augmentation = "crop_flip"


@dataclass(frozen=True)
class Shared:
    """What all networks have in common: their kind, their training, and the images that they take theirs from."""

    layout: Layout
    kernels: Module
    images: Tensor
    labels: Tensor
    recipe: Recipe
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
class Rows:
    """Partial sums of a parameter's gradient, [K, rows, width] from column `first` on; each `run` is added up first."""

    rows: Tensor
    first: int = 0
    run: int = 1


@dataclass(frozen=True)
class Buffers:
    """Every value between two kernels, by name in `kept`, for all `count` networks; those of some `slots` are given.

    "conv/raw" is the output of a convolution, "blocks.0/joined" a block's input, "norm/sums" and "norm/gradient_sums"
    are rows of partial sums, "conv.weight/sums" as well, and so on. A name is taken into memory when first asked for.
    """

    kept: dict[str, Tensor]
    layout: Layout
    count: int
    slots: slice
    batch: int
    device: torch.device

    def __getitem__(self, name: str) -> Tensor:
        """What has been kept under this name, [slots, ...]."""
        return self.kept[name][self.slots]

    def floats(self, name: str, *shape: int) -> Tensor:
        """Room for float32 under this name, [slots, *shape]."""
        return self._room(name, shape, torch.float32)

    def raw(self, conv: Conv) -> Tensor:
        """A convolution's output."""
        return self.pixels(f"{conv.name}/raw", conv.side, conv.outputs)

    def joined(self, index: int) -> Tensor:
        """The input of a block; behind the last one: what is pooled."""
        before = self.layout.blocks[index - 1].conv2 if index else self.layout.stem
        return self.pixels(f"blocks.{index}/joined", before.side, before.outputs)

    def gradient(self, side: int, number: int) -> Tensor:
        """One of three gradients of activations of a side, used in turn."""
        return self.pixels(f"gradient/{side}/{number}", side, 512 // side)

    def pixels(self, name: str, side: int, channels: int) -> Tensor:
        """Room for a batch of images in bf16."""
        return self._room(name, (self.batch, side, side, channels), torch.bfloat16)

    def targets(self) -> Tensor:
        """A batch's labels."""
        return self._room("targets", (self.batch,), torch.int32)

    def moments(self) -> Tensor:
        """Mean and variance of every norm's channels in this batch."""
        return self.floats("moments", 2, self.layout.channels)

    def norm_sums(self, norm: Norm, rows: int) -> Tensor:
        """Rows of Σy and Σy²."""
        return self.floats(f"{norm.name}/sums", rows, 2 * norm.channels)

    def gradient_sums(self, norm: Norm, rows: int) -> Tensor:
        """Rows of Σg and Σ g x̂."""
        return self.floats(f"{norm.name}/gradient_sums", rows, 2 * norm.channels)

    def weight_sums(self, name: str, rows: int) -> Tensor:
        """Rows of a parameter's gradient."""
        return self.floats(f"{name}/sums", rows, self.layout.parameters[name].length)

    def _room(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if name not in self.kept:
            self.kept[name] = torch.zeros(self.count, *shape, dtype=dtype, device=self.device)
        return self[name]
