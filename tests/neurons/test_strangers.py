"""Dead neurons of models from other libraries, with random weights."""

import pytest
import torch

import activeprune as ap
from activeprune.extras import need, present
from activeprune.neurons import DeadNeurons

pytestmark = pytest.mark.skipif(not present("timm") or not present("torchvision"), reason="needs the extra vision")


def measured(library: str, name: str, size: int) -> DeadNeurons:
    if library == "timm":
        model = need("timm").create_model(name, num_classes=4)
    else:
        model = getattr(need("torchvision").models, name)(num_classes=4)
    images = torch.randn(2, 3, size, size)
    found = ap.dead_neurons(model, ap.Masks.dense(model), [images])
    assert found.unit.dead_static == 0
    assert set(found.unit.layers) == set(found.channel.layers)
    return found


def test_torchvisions_resnet_and_its_shared_relus() -> None:
    found = measured("torchvision", "resnet18", 32)
    assert list(found.unit.layers)[:4] == ["relu", "layer1.0.relu", "layer1.0.relu#2", "layer1.1.relu"]
    assert len(found.unit.layers) == 17
    assert found.channel.neurons == 64 + 4 * (64 + 128 + 256 + 512)
    assert found.unattributed == ()


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
        ("timm", "resnet50", 64), ("timm", "seresnet18", 64), ("timm", "convnext_atto", 64), ("timm", "mixer_s16_224", 224),
        ("timm", "swin_tiny_patch4_window7_224", 224), ("timm", "efficientnet_lite0", 64), ("timm", "nf_resnet50", 64),
        ("timm", "repvgg_a0", 64), ("timm", "coatnet_nano_rw_224", 224), ("timm", "deit_tiny_patch16_224", 224),
    ],
)  # fmt: skip
def test_every_activation_is_attributed_or_listed(library: str, name: str, size: int) -> None:
    found = measured(library, name, size)
    assert found.unit.layers
    known = {layer.layer for layer in found.unattributed}
    assert all(layer.why for layer in found.unattributed)
    assert known <= set(found.unit.layers)
