"""The weights that a training starts from, as a function of (seed, cycle)."""

from __future__ import annotations

import math
from typing import Any, get_args

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from ..core.errors import InputError, unknown
from ..core.randomness import everybodys_kept, generator, seed_pythons, stable_seed, torchs_own
from . import LOADING, NETWORKS, Init, build


def initial(name: str, num_classes: int, seed: int, cycle: int, init: Init | None = None, **options: Any) -> nn.Module:
    """A network whose weights are drawn from (seed, "init", cycle), on the CPU and whatever has been drawn before.

    `init`: `kaiming_normal` draws convolutions and linear layers from N(0, 2 / fan_in); `native` leaves them as the
    builder makes them; by default what the network was registered with.

    >>> one, two = (initial("resnet8", 10, seed=3, cycle=1).state_dict() for _ in range(2))
    >>> all(torch.equal(one[name], two[name]) for name in one)
    True
    """
    chosen = NETWORKS.find(name).init if init is None else init
    if chosen not in get_args(Init):
        raise unknown("init", chosen, get_args(Init))
    if any(map(options.get, LOADING)) and chosen != "native":
        raise InputError(f"pretrained weights and init = {chosen!r}: drawing new ones would discard them")
    drawn = stable_seed(seed, "init", cycle)
    with torchs_own, everybodys_kept():
        torch.default_generator.manual_seed(drawn)
        seed_pythons(drawn)
        model = build(name, num_classes, **options)
    if chosen == "kaiming_normal":
        kaiming_normal_(model, generator(seed, "init", cycle))
    return model


@torch.no_grad()
def kaiming_normal_(model: nn.Module, draw: torch.Generator) -> None:
    """Weights from N(0, 2 / fan_in), biases uniform within ±1 / √fan_in, norm layers 1 and 0, in module order."""
    for module in model.modules():
        if isinstance(module, (_ConvNd, nn.Linear)):
            fan_in = module.weight[0].numel()
            module.weight.copy_(torch.randn(module.weight.shape, generator=draw) * math.sqrt(2 / fan_in))
            if module.bias is not None:
                module.bias.copy_((torch.rand(module.bias.shape, generator=draw) * 2 - 1) / math.sqrt(fan_in))
        elif isinstance(module, _NormBase):
            module.reset_parameters()
