"""Residual networks for small images (He et al. 2016, section 4.2): depth 6n + 2, three stages of n blocks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..core.errors import InputError, unknown
from . import network

Shortcut = Literal["conv", "pad"]
WIDTHS = (16, 32, 64)


class Pad(nn.Module):
    """The paper's option A: every other pixel, and channels of zeros. No weights."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.channels, self.stride = channels, stride

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] to [N, channels, H / stride, W / stride]."""
        extra = self.channels - x.shape[1]
        return pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, extra // 2, extra - extra // 2))


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = Pad(outputs, stride) if shortcut == "pad" else _projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class CifarResNet(nn.Module):
    """A 3x3 convolution, three stages of blocks at widths 16, 32 and 64, global pooling, one linear layer."""

    def __init__(self, depth: int, num_classes: int, in_channels: int, shortcut: Shortcut) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise InputError(f"depth = {depth}: the residual networks for small images have 8, 14, 20, ... layers")
        if shortcut not in ("conv", "pad"):
            raise unknown("shortcut", shortcut, ("conv", "pad"))
        self.depth, self.kind = depth, shortcut
        self.conv = nn.Conv2d(in_channels, WIDTHS[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTHS[0])
        blocks: list[nn.Module] = []
        inputs = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            for index in range((depth - 2) // 6):
                stride = 2 if stage and not index else 1
                blocks.append(Block(inputs, width, stride, shortcut))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [N, in_channels, H, W] to logits [N, num_classes]."""
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc(self.blocks(x).mean((2, 3)))  # type: ignore[no-any-return]


def _projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


@network("resnet20", init="kaiming_normal")
def resnet20(num_classes: int = 10, in_channels: int = 3, shortcut: Shortcut = "conv") -> nn.Module:
    """ResNet-20 for 32x32 images: 0.27M parameters; shortcut conv (1x1, the lottery-ticket literature's) or pad."""
    return CifarResNet(20, num_classes, in_channels, shortcut)


@network("resnet8", init="kaiming_normal")
def resnet8(num_classes: int = 10, in_channels: int = 3, shortcut: Shortcut = "conv") -> nn.Module:
    """ResNet-8 for small images such as digits: 0.08M parameters."""
    return CifarResNet(8, num_classes, in_channels, shortcut)
