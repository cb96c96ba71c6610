"""Dead neurons while a network is trained: counted every so often on the same few images, and nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..core.calling import Batches
from ..core.errors import InputError
from ..core.graph import WeightGraph
from ..core.masks import Masks
from ..data import Feed
from ..neurons import DeadNeuronCounter, DeadNeurons, Granularity
from .duration import Duration
from .result import State

EVERY = Duration(5)  # looks, if nobody says more
PROBED_IMAGES = 512
PIXELS_AT_ONCE = 1 << 20  # 1,024 images of 32 × 32 pixels: enough to keep a GPU busy

Probed = dict[str, Any]


class ProbedNetwork:
    """A network that states are put into to be looked at, with its weight graph: one for all trainings of a shape."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self._graph: WeightGraph | None = None

    def dead_neurons(self, state: State, masks: Masks | None, batches: Batches) -> DeadNeurons:
        """Of a state under masks."""
        self.network.load_state_dict(state)
        counter = DeadNeuronCounter(self.network, masks, self._graph)
        for batch in batches:
            counter.add(batch)
        self._graph = counter.graph  # also of a network that cannot be traced: that need not be tried again
        return counter.result()


class Probe:
    """What is looked at in a training: dead neurons on some batches, at its start and then `every` so often."""

    def __init__(self, every: Duration, network: ProbedNetwork, masks: Masks | None, batches: Sequence[Tensor]) -> None:
        self.every, self._network, self._masks, self._batches = every, network, masks, batches
        self.images = sum(len(batch) for batch in batches)

    def __call__(self, step: int, state: State) -> Probed:
        """What is seen after so many steps, or why nothing can be: a training does not end because of that."""
        try:
            found = self._network.dead_neurons(state, self._masks, self._batches)
        except InputError as error:
            return {"step": step, "why": str(error)}
        return {"step": step, "unit": _short(found.unit), "channel": _short(found.channel)}

    def due(self, first: int, last: int, steps_per_epoch: int) -> list[int]:
        """The steps to look at, from `first` to `last`.

        >>> Probe(Duration.read("2ep"), None, None, []).due(10, 50, 10)
        [10, 30, 50]
        """
        return list(range(first, last + 1, max(self.every.steps(steps_per_epoch), 1)))


def at_once(feed: Feed) -> int:
    """How many images to look at together."""
    return max(PIXELS_AT_ONCE // feed.pixels, 1)


def _short(found: Granularity) -> dict[str, Any]:
    layers = {name: [layer.static, layer.dynamic] for name, layer in found.layers.items()}
    return {"static": found.static, "dynamic": found.dynamic, "layers": layers}
