"""What a pruned network costs: alive weights, their bytes, and multiply-adds for one image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..core.prunable import standard_names
from ..experiment.plan.study import Study
from .trainings import Reported

BYTES_OF_A_WEIGHT = 4  # float32
CHANNEL_AXIS: dict[Any, int] = {F.linear: -1, F.conv1d: 1, F.conv2d: 1, F.conv3d: 1}  # of what comes out

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class LayerCost:
    """A convolution or linear layer: its weights, and how often each is used for one image."""

    weights: int
    uses: int

    @property
    def multiply_adds(self) -> int:
        """For one image, with all weights alive."""
        return self.weights * self.uses


@dataclass(frozen=True)
class Cost:
    """Of convolutions and linear layers; norm layers, biases and products of activations are not counted."""

    weights: float  # alive
    multiply_adds: float  # with them, for one image

    @property
    def bytes(self) -> float:
        """Of the alive weights in float32, without what an index of their places would take."""
        return BYTES_OF_A_WEIGHT * self.weights


def cost(layers: Mapping[str, LayerCost], densities: Mapping[str, float]) -> Cost:
    """Of a network whose layers have such densities; one that is not named is dense.

    >>> cost({"conv.weight": LayerCost(100, 64), "fc.weight": LayerCost(50, 1)}, {"conv.weight": 0.25})
    Cost(weights=75.0, multiply_adds=1650.0)
    """
    shares = {name: densities.get(name, 1.0) for name in layers}
    return Cost(
        weights=sum(layer.weights * shares[name] for name, layer in layers.items()),
        multiply_adds=sum(layer.multiply_adds * shares[name] for name, layer in layers.items()),
    )


def axes(layers: Mapping[str, LayerCost]) -> dict[str, Callable[[Reported], float | None]]:
    """What the network of a training costs, by name; None where its masks are not known."""

    def known(training: Reported) -> Cost | None:
        return None if training.cycle > 0 and not training.layers else cost(layers, training.layers)

    return {
        "alive weights": lambda training: None if (at := known(training)) is None else at.weights,
        "multiply-adds for one image": lambda training: None if (at := known(training)) is None else at.multiply_adds,
    }


def layers_of(model: nn.Module, shape: Shape) -> dict[str, LayerCost]:
    """Convolutions and linear layers by the names of their weights, for images of shape [channels, height, width].

    The model must be on the meta device: nothing is computed. A weight that no function with a rule uses has no uses.

    >>> with torch.device("meta"):
    ...     model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 4 * 4, 10))
    >>> layers_of(model, (3, 6, 6))
    {'0.weight': LayerCost(weights=216, uses=16), '2.weight': LayerCost(weights=1280, uses=1)}
    """
    with _Uses() as seen:  # with gradients: without them attention takes a short cut that hides its weights
        model.eval()(torch.empty(1, *shape, device="meta"))
    weights = {name: weight for name, weight in model.named_parameters() if name in set(standard_names(model))}
    return {name: LayerCost(weight.numel(), seen.uses.get(id(weight), 0)) for name, weight in weights.items()}


def layers_of_study(study: Study) -> dict[str, LayerCost] | None:
    """Of a study's network on its images; None where the images or the network are not at hand, or not understood."""
    try:
        shape, classes = study.training.outline()
        layers = layers_of(study.training.skeleton(classes, shape[0]), shape)
    except Exception:  # a network or a loader of somebody else's may raise anything: then there is no cost to show
        return None
    return layers if layers and all(layer.uses for layer in layers.values()) else None


class _Uses(TorchFunctionMode):
    """Counts how often each weight is used, by its identity, while a model runs."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[int, int] = {}

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if (axis := CHANNEL_AXIS.get(function)) is not None:
            self._add(args[1] if len(args) > 1 else (kwargs or {})["weight"], result.numel() // result.shape[axis])
        elif function is F.multi_head_attention_forward and args[0] is args[1] is args[2]:  # of a sequence to itself
            for weight in (args[5], args[11]):  # of the projections in and out
                self._add(weight, args[0].numel() // args[0].shape[-1])
        return result

    def _add(self, weight: Tensor, uses: int) -> None:
        self.uses[id(weight)] = self.uses.get(id(weight), 0) + uses
