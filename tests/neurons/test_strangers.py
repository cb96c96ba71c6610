"""Dead neurons of models from other libraries, with random weights."""

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.extras import need, present
from activeprune.neurons import DeadNeurons

pytestmark = pytest.mark.skipif(not present("timm") or not present("torchvision"), reason="needs the extra vision")


def network(library: str, name: str) -> nn.Module:
    if library == "timm":
        return need("timm").create_model(name, num_classes=4)
    options = {"init_weights": False} if name == "googlenet" else {}
    return getattr(need("torchvision").models, name)(num_classes=4, **options)


def measured(library: str, name: str, size: int, alive: float = 1.0) -> DeadNeurons:
    """With part of the filters pruned altogether."""
    model, draw = network(library, name), torch.Generator().manual_seed(0)
    masks = {name: mask.clone() for name, mask in ap.Masks.dense(model).items()}
    for mask in masks.values():
        mask[torch.rand(len(mask), generator=draw) >= alive] = False
    images = torch.randn(3, 3, size, size, generator=draw)
    found = ap.dead_neurons(model, ap.Masks(masks), torch.split(images, 2))
    assert set(found.unit.layers) == set(found.channel.layers)
    return found


def test_torchvisions_resnet_and_its_shared_relus() -> None:
    found = measured("torchvision", "resnet18", 32)
    assert list(found.unit.layers)[:4] == ["relu", "layer1.0.relu", "layer1.0.relu#2", "layer1.1.relu"]
    assert len(found.unit.layers) == 17
    assert found.channel.neurons == 64 + 4 * (64 + 128 + 256 + 512)
    assert (found.unit.dead_static, found.unattributed) == (0, ())


def test_mobilenets() -> None:
    found = measured("torchvision", "mobilenet_v2", 32)
    assert (len(found.unit.layers), found.unattributed) == (35, ())
    gated = measured("torchvision", "mobilenet_v3_small", 32)
    assert {"features.0.2", "features.1.block.1.activation", "classifier.1"} <= set(gated.unit.layers)
    assert gated.unattributed == ()  # a gate is a barrier, but every activation behind one is fed by live weights


def test_timms_transformer_has_its_channels_at_the_end() -> None:
    found = measured("timm", "vit_tiny_patch16_224", 224)
    assert list(found.unit.layers) == [f"blocks.{n}.mlp.act" for n in range(12)]
    assert (found.channel.neurons, found.unit.neurons) == (12 * 768, 12 * 768 * 197)
    assert found.unattributed == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "name", "size"),
    [
        ("torchvision", "vgg11_bn", 32), ("torchvision", "densenet121", 32), ("torchvision", "googlenet", 64),
        ("torchvision", "squeezenet1_1", 64), ("torchvision", "shufflenet_v2_x0_5", 32),
        ("torchvision", "efficientnet_b0", 64), ("torchvision", "convnext_tiny", 64), ("torchvision", "vit_b_16", 224),
        ("torchvision", "swin_t", 64), ("torchvision", "regnet_y_400mf", 64),
        ("timm", "resnet50", 64), ("timm", "seresnet18", 64), ("timm", "convnext_atto", 64),
        ("timm", "mixer_s16_224", 224), ("timm", "swin_tiny_patch4_window7_224", 224), ("timm", "ghostnet_100", 64),
        ("timm", "efficientnet_lite0", 64), ("timm", "nf_resnet50", 64), ("timm", "repvgg_a0", 64),
        ("timm", "coatnet_nano_rw_224", 224), ("timm", "deit_tiny_patch16_224", 224),
    ],
)  # fmt: skip
def test_every_activation_is_attributed_or_listed(library: str, name: str, size: int) -> None:
    """What no live weight feeds is a constant: dead for all three samples, or for none."""
    found = measured(library, name, size, alive=0.7)
    assert found.unit.layers
    for rates in found.unit.layers.values():
        assert rates.dead_static % 3 == 0
    gated, computed = ("multiplied with each other",), ("its weight is not a parameter",)
    expected = {"seresnet18": gated, "nf_resnet50": computed}.get(name, ())
    assert all(any(part in layer.why for part in expected) for layer in found.unattributed)
    assert bool(found.unattributed) == bool(expected)
    assert (found.unit.static > 0.01) == (name != "nf_resnet50")
