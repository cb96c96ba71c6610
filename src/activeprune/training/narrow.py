"""Convolutions of few or odd numbers of channels, written so that a compiler makes them fast on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

READ_AT_ONCE = 8  # channels of 16 bits each, by tensor cores
FEW = 16  # outputs, of which cuDNN computes 32 or 64 at once; docs/claims.md has what was measured


def rewrite(model: nn.Module) -> None:
    """Gives a network's narrow convolutions another way to compute the same; names and parameters stay."""
    for module in model.modules():
        if type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros":
            if Spread.suits(module):
                module.__class__ = Spread  # not another object: hooks stay, and what is used twice
            elif _missing(module.in_channels) or _missing(module.out_channels):
                module.__class__ = Padded


class Padded(nn.Conv2d):
    """Adds channels of zeros, up to what tensor cores read at once.

    cuDNN would add the same in kernels of its own, up to three a pass; from here they become part of the kernels
    before and after.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, out_channels, H', W']."""
        if x.dim() != 4:
            return super().forward(x)
        more_in, more_out = _missing(self.in_channels), _missing(self.out_channels)
        weight = pad(self.weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
        bias = None if self.bias is None else pad(self.bias, (0, more_out))
        wide = conv2d(pad(x, (0, 0, 0, 0, 0, more_in)), weight, bias, self.stride, self.padding, self.dilation)
        return wide[:, : self.out_channels]


class Spread(nn.Conv2d):
    """A convolution with few outputs, as products of matrices with a row for each pixel."""

    @staticmethod
    def suits(conv: nn.Conv2d) -> bool:
        """Whether outputs are few and inputs more, or fewer still; and as many pixels come out as go in."""
        few = conv.out_channels <= FEW and not READ_AT_ONCE <= conv.in_channels <= conv.out_channels
        size = conv.kernel_size
        same = (conv.stride, conv.dilation, conv.padding) == ((1, 1), (1, 1), (size[0] // 2, size[1] // 2))
        return few and same and size != (1, 1) and all(side % 2 for side in size)

    def forward(self, x: Tensor) -> Tensor:
        """[N, in_channels, H, W] to [N, out_channels, H, W]."""
        if x.dim() != 4:
            return super().forward(x)
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        more = (0, 0, 0, 0, 0, _missing(self.in_channels))
        y: Tensor = _Spread.apply(pad(x.to(dtype), more), pad(self.weight.to(dtype), more))  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.to(dtype).view(-1, 1, 1)


class _Spread(torch.autograd.Function):
    """Forward, a pixel spreads to its neighbours what the kernel makes of it, and each adds up what it gets. Backward,
    a pixel collects its neighbours' gradients. Neighbours' inputs, of which there are more, are never collected.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        n, _, h, w = x.shape
        outputs, _, tall, wide = weight.shape
        spread = (_pixels(x) @ _matrix(weight))[:, : outputs * tall * wide].view(n, h, w, tall, wide, outputs)
        spread = pad(spread, (0, 0, 0, 0, 0, 0, wide // 2, wide // 2, tall // 2, tall // 2))
        exact = torch.promote_types(x.dtype, torch.float32)
        total = torch.zeros((), dtype=exact, device=x.device)
        for i in range(tall):
            for j in range(wide):
                total = total + spread[:, i : i + h, j : j + w, i, j].to(exact)
        return total.to(x.dtype).permute(0, 3, 1, 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        n, inputs, h, w = x.shape
        outputs, _, tall, wide = weight.shape
        around = pad(gradient.permute(0, 2, 3, 1), (0, 0, wide // 2, wide // 2, tall // 2, tall // 2))
        around = around.unfold(1, tall, 1).unfold(2, wide, 1).permute(0, 1, 2, 4, 5, 3).reshape(n * h * w, -1)
        around = pad(around, (0, _missing(around.shape[1])))
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = (around @ _matrix(weight.flip(2, 3)).T).view(n, h, w, inputs).permute(0, 3, 1, 2)
        if ctx.needs_input_grad[1]:
            turned = (_pixels(x).T @ around)[:, : outputs * tall * wide].view(inputs, tall, wide, outputs)
            dw = turned.permute(3, 0, 1, 2).flip(2, 3)
        return dx, dw


def _pixels(x: Tensor) -> Tensor:
    """[N, C, H, W] to [N · H · W, C]."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _matrix(weight: Tensor) -> Tensor:
    """[outputs, inputs, tall, wide] to [inputs, tall · wide · outputs and some zeros]."""
    columns = weight.permute(1, 2, 3, 0).reshape(weight.shape[1], -1)
    return pad(columns, (0, _missing(columns.shape[1])))


def _missing(channels: int) -> int:
    return -channels % READ_AT_ONCE
