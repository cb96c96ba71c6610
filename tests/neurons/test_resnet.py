"""Dead neurons of ResNet-20 against a slow, obvious count that knows the network's shape and nothing else."""

import copy

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.networks.cifar_resnet import Block, CifarResNet
from tests.replay import randomised

Layers = list[tuple[Tensor, list[bool]]]  # the outputs of each ReLU, and which of its channels no live weight feeds


def network(shortcut: str) -> CifarResNet:
    model = ap.build("resnet20", shortcut=shortcut)
    assert isinstance(model, CifarResNet)
    randomised(model)
    return model


def masks_with_pruned_filters(model: nn.Module) -> ap.Masks:
    """Random ones, in which a third of all filters is gone altogether."""
    draw = torch.Generator().manual_seed(3)
    masks = {name: torch.rand(mask.shape, generator=draw) < 0.5 for name, mask in ap.Masks.dense(model).items()}
    for mask in masks.values():
        mask[torch.rand(len(mask), generator=draw) < 0.33] = False
    return ap.Masks(masks)


def gone(masks: ap.Masks, name: str) -> list[bool]:
    return [not bool(row.any()) for row in masks[name]]


@torch.no_grad()
def outputs(model: CifarResNet, masks: ap.Masks, images: Tensor) -> Layers:
    """Block by block, as the paper draws it."""
    x, unfed = torch.relu(model.bn(model.conv(images))), gone(masks, "conv.weight")
    found: Layers = [(x, unfed)]
    for index, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        inner = torch.relu(block.bn1(block.conv1(x)))
        found.append((inner, gone(masks, f"blocks.{index}.conv1.weight")))
        if isinstance(block.shortcut, nn.Sequential):
            past = gone(masks, f"blocks.{index}.shortcut.0.weight")
        elif isinstance(block.shortcut, nn.Identity):
            past = unfed
        else:
            extra = (inner.shape[1] - len(unfed)) // 2
            past = [True] * extra + unfed + [True] * extra
        x = torch.relu(block.bn2(block.conv2(inner)) + block.shortcut(x))
        own = gone(masks, f"blocks.{index}.conv2.weight")
        unfed = [one and other for one, other in zip(own, past, strict=True)]
        found.append((x, unfed))
    return found


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_a_slow_count_agrees_exactly(shortcut: str) -> None:
    model = network(shortcut)
    masks = masks_with_pruned_filters(model)
    batches = torch.split(torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(4)), 2)
    found = ap.dead_neurons(model, masks, batches)
    plain = copy.deepcopy(model)
    masks.apply_(plain)
    seen = [outputs(plain, masks, images) for images in batches]
    assert found.unattributed == ()
    assert len(found.unit.layers) == len(found.channel.layers) == 19
    statics = 0
    for number, (unit, channel) in enumerate(
        zip(found.unit.layers.values(), found.channel.layers.values(), strict=True)
    ):
        unfed = seen[0][number][1]
        expected = {"unit": [0, 0], "channel": [0, 0]}
        often: dict[tuple[int, int], int] = {}
        for layers in seen:
            for sample in layers[number][0]:
                for index, plane in enumerate(sample):
                    dead = [value == 0 for value in plane.flatten().tolist()]
                    expected["unit"][not unfed[index]] += sum(dead)
                    expected["channel"][not unfed[index]] += all(dead)
                    for place, is_dead in enumerate(dead):
                        often[index, place] = often.get((index, place), 0) + is_dead
        for rates, kind in ((unit, "unit"), (channel, "channel")):
            assert [rates.dead_static, rates.dead - rates.dead_static] == expected[kind]
        assert (unit.neurons, channel.neurons) == (len(often), len(unfed))
        assert unit.never_active == sum(times == 5 and not unfed[index] for (index, _), times in often.items())
        assert unit.histogram[0] == sum(times == 0 for times in often.values())
        assert unit.histogram[3] == sum(times == 1 for times in often.values())  # of five samples: [0.2, 0.3)
        assert unit.histogram[-1] == sum(times == 5 for times in often.values())
        statics += unit.dead_static
    assert 0 < statics == found.unit.dead_static < found.unit.dead
    assert found.unit.neurons == 188_416 // 16  # images of 8 × 8 instead of 32 × 32
    assert found.channel.neurons == 7 * 16 + 6 * 32 + 6 * 64


def test_one_graph_serves_every_network_of_the_architecture() -> None:
    graph = ap.trace(network("conv"), torch.zeros(1, 3, 8, 8))
    images = torch.randn(4, 3, 16, 16)
    for seed in range(2):
        torch.manual_seed(seed)
        model = network("conv")
        masks = masks_with_pruned_filters(model)
        assert ap.dead_neurons(model, masks, [images], graph) == ap.dead_neurons(model, masks, [images])
