"""Colour images of 32 × 32 pixels that can be learnt, made on the spot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.data import Dataset, Images
from activeprune.training import Training
from tests.training.makers import Unreadable


def patches(path: None = None) -> Dataset:
    """Ten classes of noise with a brighter patch, whose place and colour tell the class."""
    draw = torch.Generator().manual_seed(7)

    def images(count: int) -> Images:
        labels = torch.arange(count) % 10
        pixels = torch.randint(0, 160, (count, 3, 32, 32), generator=draw)
        for label in range(10):
            row, column = 3 * label % 24, 7 * label % 24
            pixels[labels == label, label % 3, row : row + 8, column : column + 8] += 90
        return Images(pixels.to(torch.uint8), labels)

    return Dataset("patches", tuple("abcdefghij"), images(1280), images(200))


BASE: dict[str, Any] = {
    "network": "resnet20", "data": "tests.gpu.makers:patches", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4,
    "augment": "crop_flip", "epochs": "2ep", "batch": 128,
}  # fmt: skip


def training(**keys: Any) -> Training:
    return Training.read({**BASE, **keys})


def start_of(chosen: Training, seed: int = 0) -> dict[str, Tensor]:
    return chosen.build(10, 3, seed).state_dict()


def half(chosen: Training, seed: int = 0) -> ap.Masks:
    model = chosen.build(10, 3)
    draw = torch.Generator().manual_seed(seed)
    dense = ap.Masks.dense(model)
    return ap.Masks({name: torch.rand(mask.shape, generator=draw) < 0.5 for name, mask in dense.items()})


def dropping(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    layers = [nn.Flatten(), nn.Dropout(0.5), nn.Linear(in_channels * 1024, num_classes)]
    return nn.Sequential(*layers)


class Waiting(nn.Sequential):
    """Looks at a number of its output, in training or only else."""

    in_training = True

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)
        looks = self.in_training or not self.training
        return output + 1 if looks and not output.sum().item() else output


def waiting(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    return Waiting(nn.Flatten(), nn.Linear(in_channels * 1024, num_classes))


def waiting_in_evaluation(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    model = waiting(num_classes, in_channels)
    model.in_training = False
    return model


def narrow(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    """No number of its channels suits tensor cores."""
    layers = [nn.Conv2d(in_channels, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU()]
    layers += [nn.Conv2d(12, 20, 3, stride=2), nn.BatchNorm2d(20), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(20, num_classes))


def unreadable(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    return Unreadable(*narrow(num_classes, in_channels))
