"""VGG-19 with batch-norm, with the small head of the CIFAR literature and with ImageNet's."""

from __future__ import annotations

from torch import nn

from . import network

STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # width, convolutions: sixteen in all


@network("vgg19", init="kaiming_normal")
def vgg19(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    """VGG-19 for 32x32 images: sixteen 3x3 convolutions, global pooling, one linear layer; 20.0M parameters."""
    features = _features(in_channels)[:-1]  # no pooling after the last stage
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_classes))


@network("vgg19_139m", init="kaiming_normal")
def vgg19_139m(num_classes: int = 10, in_channels: int = 3, dropout: float = 0.5) -> nn.Module:
    """VGG-19 with ImageNet's head (25088-4096-4096-classes), as the paper's 139M parameters say."""
    head = [
        nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(dropout),
        nn.Linear(4096, num_classes),
    ]  # fmt: skip
    return nn.Sequential(*_features(in_channels), nn.AdaptiveAvgPool2d(7), nn.Flatten(), *head)


def _features(in_channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    inputs = in_channels
    for width, count in STAGES:
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return layers
