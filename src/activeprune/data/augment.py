"""Shifts and mirrors of small images: drawn on the CPU for a whole epoch, done on the device for a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.errors import InputError, unknown
from ..core.randomness import generator
from .images import Files, Images

Augmentation = Literal["none", "crop", "crop_flip", "resized_crop_flip"]
AUGMENTATIONS: tuple[str, ...] = get_args(Augmentation)
PADDING = 4  # pixels on each side, as is usual for CIFAR


@dataclass(frozen=True, eq=False)
class Draws:
    """The random numbers of one epoch; entry i belongs to the i-th image that the epoch shows.

    `order` int32 [n], a permutation; `shift` uint8 [n, 2], rows down and columns to the right in the padded image,
    0..8; `flip` bool [n]: as small as they can be, for they are on their way to a device in every epoch.
    """

    order: Tensor
    shift: Tensor
    flip: Tensor

    @classmethod
    def of(cls, draw: torch.Generator, n: int) -> Draws:
        """The next draws of a generator."""
        return cls(
            order=torch.randperm(n, generator=draw).int(),
            shift=torch.randint(0, 2 * PADDING + 1, (n, 2), generator=draw).byte(),
            flip=torch.randint(0, 2, (n,), generator=draw).bool(),
        )

    def to(self, device: torch.device | str) -> Draws:
        """The same draws on a device."""
        return Draws(self.order.to(device), self.shift.to(device), self.flip.to(device))


def draws(seed: int, epoch: int, n: int) -> Draws:
    """The draws of an epoch over `n` images: the same whatever the augmentation, the device and the batch.

    >>> draws(0, 3, 5).order.sort().values
    tensor([0, 1, 2, 3, 4], dtype=torch.int32)
    """
    return Draws.of(generator(seed, "data", epoch), n)


def augmented(pixels: Tensor, shift: Tensor, flip: Tensor, padding: int = PADDING) -> Tensor:
    """Images [n, C, H, W] in a black frame of `padding` pixels, cut out again at `shift`, mirrored where `flip`.

    `shift` [n, 2] counts rows and columns from the frame's upper left corner, so `padding` is where the image was.
    One gather and nothing that waits for the device.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> augmented(image, torch.tensor([[0, 1]]), torch.tensor([True]), padding=1)
    tensor([[[[0, 0],
              [2, 1]]]], dtype=torch.uint8)
    """
    n, channels, height, width = pixels.shape
    columns = torch.arange(width, device=pixels.device)
    columns = torch.where(flip[:, None], width - 1 - columns, columns) + shift[:, 1:]
    rows = torch.arange(height, device=pixels.device) + shift[:, :1]
    index = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    framed = pad(pixels, (padding, padding, padding, padding)).flatten(2)
    return framed.gather(2, index.view(n, 1, -1).expand(-1, channels, -1)).view_as(pixels)


def check_augmentation(augment: str, images: Images | Files) -> None:
    """Refuses what does not exist, and what such images cannot have."""
    if augment not in AUGMENTATIONS:
        raise unknown("augmentation", augment, AUGMENTATIONS)
    if isinstance(images, Images) and augment == "resized_crop_flip":
        raise InputError("augment = 'resized_crop_flip' is for folders of image files: here 'crop_flip' is possible")
    if isinstance(images, Files) and augment in ("crop", "crop_flip"):
        raise InputError(f"augment = {augment!r} is for small images: here 'resized_crop_flip' is possible")
