"""What a change of one neuron reaches without passing through another weight: found by running the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import activeprune as ap

Reached = dict[str, set[int]]  # weight -> indices along its input axis
LARGE = 50.0  # lifts any ReLU over its threshold


def weighted_modules(model: nn.Module) -> dict[str, nn.Module]:
    kinds = (nn.Conv2d, nn.Linear)
    return {f"{name}.weight": module for name, module in model.named_modules() if isinstance(module, kinds)}


def randomised(model: nn.Module) -> nn.Module:
    """With norm layers that hide nothing: γ > 0 and different everywhere."""
    draw = torch.Generator().manual_seed(5)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            module.weight.data.uniform_(0.5, 1.5, generator=draw)
            module.bias.data.uniform_(-0.5, 0.5, generator=draw)
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 2.0, generator=draw)
    return model.eval()


@torch.no_grad()
def changed_by_replay(model: nn.Module, x: Tensor, weight: str, channel: int) -> Reached:
    """Every layer repeats what it said before, but for one channel of one layer; which inputs notice?

    Layer norms only scale and shift here: their statistics would spread the change over all channels.
    """
    inputs, outputs = _run(model, x, {})
    changed = {name: output.clone() for name, output in outputs.items()}
    axis = _axis(weighted_modules(model)[weight])
    changed[weight].select(axis, channel).add_(LARGE)
    now, _ = _run(model, x, changed)
    reached: Reached = {}
    for name, module in weighted_modules(model).items():
        moved = (now[name] != inputs[name]).movedim(_axis(module), 0).flatten(1).any(1)
        if moved.any():
            reached[name] = set(moved.nonzero().flatten().tolist())
    return reached


def changed_by_graph(graph: ap.WeightGraph, weight: str, channel: int) -> Reached:
    """The same from the graph."""
    feeds = graph.layers[weight].feeds
    neurons = set(feeds[feeds[:, 1] == channel, 0].tolist())
    for link in graph.links:
        neurons |= {t for s, t in zip(link.source.tolist(), link.target.tolist(), strict=True) if s in neurons}
    reached = {
        name: {index for neuron, index in layer.reads.tolist() if neuron in neurons}
        for name, layer in graph.layers.items()
    }
    return {name: indices for name, indices in reached.items() if indices}


def _axis(module: nn.Module) -> int:
    return 1 if isinstance(module, nn.Conv2d) else -1


def _run(model: nn.Module, x: Tensor, replaced: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def layer_hook(name: str):
        def hook(module: nn.Module, arguments: tuple[Tensor], output: Tensor) -> Tensor:
            inputs[name] = arguments[0].clone()
            outputs[name] = output.clone()
            return replaced[name].clone() if name in replaced else output

        return hook

    def norm_hook(module: nn.LayerNorm, arguments: tuple[Tensor], output: Tensor) -> Tensor:
        return arguments[0] * module.weight + module.bias

    handles = [m.register_forward_hook(layer_hook(name)) for name, m in weighted_modules(model).items()]
    handles += [m.register_forward_hook(norm_hook) for m in model.modules() if isinstance(m, nn.LayerNorm)]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return inputs, outputs
