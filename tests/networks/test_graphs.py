"""The weight graph of every network, neuron by neuron, against what a change really reaches."""

import pytest
import torch

import activeprune as ap
from tests.networks.test_networks import SIZES
from tests.replay import changed_by_graph, changed_by_replay, randomised, weighted_modules

IDENTITY = "identity"
BY_HAND = {"resnet20", "vgg19", "vgg19_139m", "densenet40", "mobilenetv2", "resnet50", "vit_b16"}  # below
OTHERS = [(name, shape) for name, _, shape, _ in SIZES if name not in BY_HAND]


def check(name: str, size: int, layers: int | None = None, channels: int = 3, **options) -> ap.WeightGraph:
    """No barrier, every prunable weight there, and for some channels of every layer the right neighbours."""
    model = randomised(ap.build(name, **options))
    image = torch.randn(1, channels, size, size, generator=torch.Generator().manual_seed(1))
    graph = ap.trace(model, image)
    assert graph.barriers == ()
    assert set(graph.layers) == set(ap.Masks.dense(model))
    for layer, module in list(weighted_modules(model).items())[:: 1 if layers is None else -layers]:
        outputs = module.weight.shape[0]
        changed = {outputs - 1, outputs * 5 // 7}
        if layer.endswith("qkv.weight"):  # queries and keys change how tokens are weighted: no channel of their own
            changed = {outputs - 1, outputs * 2 // 3}
        for channel in changed:
            assert changed_by_graph(graph, layer, channel) == changed_by_replay(model, image, layer, channel)
    return graph


@pytest.mark.parametrize(("name", "shape"), OTHERS, ids=[name for name, _ in OTHERS])
def test_every_network_that_has_no_test_of_its_own(name: str, shape: tuple[int, int, int]) -> None:
    channels, _, size = shape
    check(name, size, channels=channels)


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_resnet20(shortcut: str) -> None:
    graph = check("resnet20", 8, shortcut=shortcut)
    assert graph.reading("conv.weight") == {"blocks.0.conv1.weight", IDENTITY}
    entry = {"blocks.3.conv1.weight", "blocks.3.shortcut.0.weight" if shortcut == "conv" else IDENTITY}
    assert graph.reading("blocks.2.conv2.weight") == entry
    assert graph.feeding("fc.weight") == {"blocks.8.conv2.weight", IDENTITY}


def test_vgg19() -> None:
    graph = check("vgg19", 16)
    chain = list(graph.layers)
    assert [graph.reading(name) for name in chain] == [{name} for name in chain[1:]] + [set()]


@pytest.mark.slow
def test_vgg19_with_the_large_head() -> None:
    """Through pooling and flatten: 49 inputs of the first linear layer belong to one channel."""
    graph = check("vgg19_139m", 32, layers=4)
    reads = graph.layers["55.weight"].reads
    assert len(reads) == 25088
    assert len(set(reads[:, 0].tolist())) == 512


def test_densenet40() -> None:
    graph = check("densenet40", 8)
    block = {f"{i}.conv.weight" for i in range(1, 14)}  # twelve layers and the transition
    assert graph.reading("0.weight") == block
    assert graph.feeding("13.conv.weight") == {"0.weight", *block} - {"13.conv.weight"}


def test_mobilenetv2() -> None:
    graph = check("mobilenetv2", 16)
    assert graph.feeding("5.body.0.weight") == {"4.body.6.weight"}
    assert graph.feeding("6.body.0.weight") == {"5.body.6.weight", IDENTITY}


def test_resnet50() -> None:
    graph = check("resnet50", 32, layers=3)
    assert graph.feeding("layer1.1.conv1.weight") == {"layer1.0.conv3.weight", "layer1.0.downsample.0.weight"}
    assert graph.feeding("fc.weight") == {"layer4.2.conv3.weight", IDENTITY}


def test_vit_b16() -> None:
    graph = check("vit_b16", 32, layers=5, resolution=32)
    block = "blocks.3.{}.weight".format
    assert graph.feeding(block("attn.qkv")) == {"blocks.2.mlp.fc2.weight", IDENTITY}
    assert graph.reading(block("attn.qkv")) == {block("attn.proj")}
    assert graph.reading(block("attn.proj")) == {block("mlp.fc1"), IDENTITY}
    assert graph.reading(block("mlp.fc1")) == {block("mlp.fc2")}
    assert graph.reading("blocks.11.mlp.fc2.weight") == {"head.weight"}
    reads = graph.layers[block("attn.proj")].reads
    feeds = graph.layers[block("attn.qkv")].feeds
    assert reads[:, 0].tolist() == feeds[1536:, 0].tolist()  # values, in the order of heads and their channels
    assert graph.exposed[feeds[:1536, 0]].all()
