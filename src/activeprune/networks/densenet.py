"""DenseNet-40 for small images (Huang et al. 2017): three dense blocks of twelve layers, growth rate 12."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import network

GROWTH, LAYERS, STEM = 12, 12, 16


class DenseLayer(nn.Module):
    """Adds `GROWTH` channels to what it reads: batch-norm, ReLU, 3x3 convolution."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, GROWTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, inputs + GROWTH, H, W]."""
        return torch.cat([x, self.conv(torch.relu(self.bn(x)))], dim=1)


class Transition(nn.Module):
    """A 1x1 convolution that keeps the number of channels, and pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, H, W] to [N, channels, H / 2, W / 2]."""
        return self.pool(self.conv(torch.relu(self.bn(x))))  # type: ignore[no-any-return]


@network("densenet40", init="kaiming_normal")
def densenet40(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    """DenseNet-40 (growth rate 12) for 32x32 images: 1.1M parameters on 100 classes."""
    layers: list[nn.Module] = [nn.Conv2d(in_channels, STEM, 3, padding=1, bias=False)]
    channels = STEM
    for block in range(3):
        for _ in range(LAYERS):
            layers.append(DenseLayer(channels))
            channels += GROWTH
        if block < 2:
            layers.append(Transition(channels))
    head = [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(channels, num_classes))
