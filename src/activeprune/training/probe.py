"""Dead neurons while a network is trained: counted every so often on the same few images, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.masks import Masks
from ..data import Feed
from ..neurons import Granularity
from ..neurons.again import Removed, RepeatedCounter
from .duration import Duration
from .result import Snapshot

EVERY = Duration(5)  # looks, if nobody says more
PROBED_IMAGES = 512
PIXELS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 22}  # 1,024 images of 32 × 32 pixels; 4,096 to keep a GPU busy

Probed = dict[str, Any]


class Probe:
    """What is looked at in a training: dead neurons on some batches, at its start and then `every` so often."""

    def __init__(
        self, every: Duration, network: RepeatedCounter, masks: Masks | None, batches: Sequence[Tensor]
    ) -> None:
        self.every, self._network, self._pruned, self._batches = every, network, Removed(masks), batches
        self.images = sum(len(batch) for batch in batches)

    def __call__(self, step: int, state: Snapshot) -> Probed:
        """What is seen after so many steps, or why nothing can be: a training does not end because of that."""
        try:
            found = self._network.counted(state(), self._pruned, self._batches)
        except InputError as error:
            return {"step": step, "why": str(error)}
        return {"step": step, "unit": _short(found.unit), "channel": _short(found.channel)}

    def due(self, first: int, last: int, steps_per_epoch: int) -> list[int]:
        """The steps to look at, from `first` to `last`.

        >>> Probe(Duration.read("2ep"), None, None, []).due(10, 50, 10)
        [10, 30, 50]
        """
        return list(range(first, last + 1, max(self.every.steps(steps_per_epoch), 1)))


def at_once(feed: Feed, device: torch.device) -> int:
    """How many images to look at together."""
    return max(PIXELS_AT_ONCE.get(device.type, PIXELS_AT_ONCE["cpu"]) // feed.pixels, 1)


def _short(found: Granularity) -> dict[str, Any]:
    layers = {name: [layer.static, layer.dynamic] for name, layer in found.layers.items()}
    return {"static": found.static, "dynamic": found.dynamic, "layers": layers}
