"""The global pruning step against torch.nn.utils.prune, at the sizes of real networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils import prune

from ..core.activation import activate
from ..core.errors import unknown
from ..core.masks import Masks
from ..core.pruning import prune_lowest, score
from .measure import peak_extra_bytes, seconds

P, Q = 0.20, 0.02


@dataclass(frozen=True)
class Row:
    """One measurement; ratios compare within the same process."""

    network: str
    weights: int
    step: str
    seconds: float
    times_faster_than_torch: float
    times_global_magnitude: float | None
    extra_memory: float | None  # peak, as a multiple of the weights' own bytes


def vgg19_layers() -> list[nn.Module]:
    """The layers of VGG-19 for CIFAR: 20 million weights."""
    widths = [3, 64, 64, 128, 128, *[256] * 4, *[512] * 8]
    convolutions = [nn.Conv2d(a, b, 3, bias=False) for a, b in pairwise(widths)]
    return [*convolutions, nn.Linear(512, 10)]


def vit_b16_layers() -> list[nn.Module]:
    """The layers of ViT-B/16: 86 million weights."""
    block = [(768, 2304), (768, 768), (768, 3072), (3072, 768)]
    blocks = [nn.Linear(a, b) for _ in range(12) for a, b in block]
    return [nn.Conv2d(3, 768, 16), *blocks, nn.Linear(768, 1000)]


SIZES = {"vgg19": vgg19_layers, "vit_b16": vit_b16_layers}


def run(networks: list[str], device: torch.device, repeats: int) -> Iterator[Row]:
    """Rows for each network: torch's global_unstructured, then ours by three metrics."""
    for name in networks:
        if name not in SIZES:
            raise unknown("network to measure", name, SIZES)
    for name in networks:
        yield from _measure(name, device, repeats)


def _measure(name: str, device: torch.device, repeats: int) -> Iterator[Row]:
    torch.manual_seed(0)
    model = nn.ModuleList(SIZES[name]()).to(device)
    masks = Masks.dense(model)
    start = {key: value + 0.01 * torch.randn_like(value) for key, value in model.state_dict().items()}
    size = sum(weight.numel() * weight.element_size() for weight in masks.weights_of(model).values())
    count, by_ap = int(P * masks.alive), int(Q * masks.alive)

    def torch_prunes() -> None:
        prune.global_unstructured([(layer, "weight") for layer in model], prune.L1Unstructured, amount=count)

    def undo_torch() -> None:
        for layer in model:
            if prune.is_pruned(layer):
                layer.weight = layer.weight_orig  # the values before pruning
                del layer.weight_orig, layer.weight_mask
                layer._forward_pre_hooks.clear()

    def by_score(method: str) -> Masks:
        return prune_lowest(masks, score(method, model, masks), count)

    steps = {
        "torch.nn.utils.prune": torch_prunes,
        "global_magnitude": lambda: by_score("global_magnitude"),
        "lamp": lambda: by_score("lamp"),
        "AP's rule": lambda: activate(masks, model.state_dict(), start, by_ap),
    }
    times: dict[str, float] = {}
    for step, work in steps.items():
        before = undo_torch if work is torch_prunes else None
        times[step] = seconds(work, repeats, device, before)
        undo_torch()
        memory = peak_extra_bytes(work, device)
        undo_torch()
        yield Row(
            network=name,
            weights=masks.total,
            step=step,
            seconds=times[step],
            times_faster_than_torch=times["torch.nn.utils.prune"] / times[step],
            times_global_magnitude=times[step] / times["global_magnitude"] if "global_magnitude" in times else None,
            extra_memory=None if memory is None else memory / size,
        )
