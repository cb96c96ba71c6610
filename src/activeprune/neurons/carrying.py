"""Many small tensors from one device to another, in one transfer for each type of number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

CPU = torch.device("cpu")


def carried(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """The tensors on a device, in the same order.

    >>> a, b = carried([torch.ones(2, 3), torch.zeros(4)], CPU)
    >>> a.shape, b.shape
    (torch.Size([2, 3]), torch.Size([4]))
    """
    there = [*tensors]
    by_kind: dict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        if tensor.device != device:
            by_kind[tensor.device, tensor.dtype].append(place)
    for places in by_kind.values():
        together = torch.cat([tensors[place].flatten() for place in places]).to(device)
        parts = torch.split(together, [tensors[place].numel() for place in places])
        for place, part in zip(places, parts, strict=True):
            there[place] = part.view(tensors[place].shape)
    return there
