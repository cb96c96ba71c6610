"""From bytes to what a network takes: mean 0, standard deviation 1, and the size that it wants."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..core.errors import InputError
from .images import Images


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel, where black is 0 and white is 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise InputError(f"normalisation: {len(self.mean)} means and {len(self.std)} standard deviations")
        if not all(std > 0 for std in self.std):
            raise InputError(f"normalisation: standard deviations must be above 0, not {self.std}")

    def factors(self, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """`scale` and `shift`, float32 [C, 1, 1], with (bytes/255 - mean) / std = bytes · scale + shift."""
        mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (self.mean, self.std))
        return (1 / (255 * std)).float().to(device), (-mean / std).float().to(device)


IMAGENET = Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def statistics(images: Images) -> Normalisation:
    """Mean and standard deviation of every channel, from exact sums of whole numbers; a constant channel gets std 1.

    >>> statistics(Images(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1), torch.tensor([0, 1])))
    Normalisation(mean=(0.5,), std=(0.5,))
    """
    means, stds = [], []
    for channel in images.pixels.unbind(1):
        counts = torch.bincount(channel.flatten(), minlength=256).tolist()
        n = sum(counts)
        total = sum(value * count for value, count in enumerate(counts))
        squares = sum(value * value * count for value, count in enumerate(counts))
        means.append(total / (255 * n))
        stds.append(sqrt(n * squares - total * total) / (255 * n) or 1.0)
    return Normalisation(tuple(means), tuple(stds))


def scaled(pixels: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """pixels · scale + shift, float32; with the factors at hand it waits for nothing.

    >>> scaled(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), *Normalisation((0.5,), (0.25,)).factors("cpu"))
    tensor([[[[-2.,  2.]]]])
    """
    return pixels.float().mul_(scale).add_(shift)


def resized(x: Tensor, resolution: int) -> Tensor:
    """A float batch [n, C, H, W] at `resolution` × `resolution`, bicubic with antialiasing; as it is where it fits.

    >>> resized(torch.zeros(2, 3, 32, 32), 224).shape
    torch.Size([2, 3, 224, 224])
    """
    if x.shape[2:] == (resolution, resolution):
        return x
    return interpolate(x, size=(resolution, resolution), mode="bicubic", antialias=True)
