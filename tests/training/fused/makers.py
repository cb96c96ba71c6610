"""Fused engines of small ResNets, what they are given and what they leave behind."""

from __future__ import annotations

import torch

from activeprune.data.augment import augmented
from activeprune.networks.cifar_resnet import CifarResNet
from activeprune.training.fused import FusedResNets, Layout, Recipe

SCALE = torch.tensor([1 / (255 * s) for s in (0.247, 0.2435, 0.2616)])
SHIFT = torch.tensor([-m / s for m, s in ((0.4914, 0.247), (0.4822, 0.2435), (0.4465, 0.2616))])


def model_of(depth=20, shortcut="conv", seed=0, classes=10):
    """A network whose norms are not all alike."""
    torch.manual_seed(seed)
    model = CifarResNet(depth, classes, 3, shortcut)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.weight, 1, 0.2)
            torch.nn.init.normal_(module.bias, 0, 0.2)
        elif isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    return model


def engine_of(data, models, masks=None, **options):
    """The models in training on the device of `data`."""
    depth = 6 * (len(models[0].blocks) // 3) + 2
    shortcut = "conv" if any("shortcut" in name for name in models[0].state_dict()) else "pad"
    layout = Layout(depth, shortcut, models[0].fc.out_features)
    engine = FusedResNets(layout, Recipe(**{"batch": 64, "weight_decay": 5e-4, **options}), *data, len(models))
    for slot, model in enumerate(models):
        engine.normalise(slot, SCALE, SHIFT)
        engine.place(slot, model.state_dict(), masks)
    return engine


def draws_of(engine, steps, seed=0, images=512):
    """Order, shift and flip of `steps` batches for every network, each with its own."""
    generator = torch.Generator().manual_seed(seed)
    shape = (engine.members, steps, engine.batch)
    order = torch.randint(0, images, shape, generator=generator)
    shift = torch.randint(0, 9, (*shape, 2), generator=generator)
    return order, shift, torch.rand(shape, generator=generator) < 0.5


def batch_of(data, order, shift, flip):
    """What a network sees, float32 [B, 3, 32, 32], and its labels."""
    images, labels = data
    scale, shift_, *drawn = (tensor.to(images.device) for tensor in (SCALE, SHIFT, order, shift, flip))
    pixels = augmented(images[drawn[0]], drawn[1], drawn[2]).float()
    return pixels.mul_(scale[:, None, None]).add_(shift_[:, None, None]), labels[drawn[0]]


def everyone(engine):
    return torch.ones(engine.members, dtype=torch.bool)


def rates_of(engine, steps, rate):
    return torch.full((engine.members, steps), rate)


def gradients_of(engine, slot):
    """The gradient that the engine's partial sums add up to, by parameter name."""
    rows = torch.zeros(engine.layout.size)
    for name, parameter in engine.layout.parameters.items():
        owner, _, kind = name.rpartition(".")
        if owner in engine.layout.norms:
            sums = engine.buffers[f"{owner}/gradient_sums"][slot].sum(0).view(2, -1)[1 if kind == "weight" else 0]
        else:
            sums = engine.buffers[f"{name}/sums"][slot].sum(0)
        rows[parameter.start : parameter.start + parameter.length] = sums.cpu()
    return engine.layout.tensors(rows)


def states_of(engine, slot):
    return {**engine.state(slot), **engine.momentum(slot)}


def assert_same(first, second):
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name
