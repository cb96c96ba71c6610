"""What networks cost, against counts by hand and numbers of the literature."""

from pathlib import Path

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.data import Dataset
from activeprune.experiment.plan.reading import read_study
from activeprune.report.cost import Cost, LayerCost, cost, layers_of, layers_of_study
from tests.data.makers import noise


def on_meta(name: str, **options: int) -> nn.Module:
    with torch.device("meta"):
        return ap.build(name, **options)


def test_resnet20_by_hand() -> None:
    """Stages of 16, 32 and 64 channels on maps of 32², 16² and 8², a 1 × 1 shortcut where the width doubles."""
    first = 3 * 16 * 9 * 32**2
    stages = 6 * 16 * 16 * 9 * 32**2 + 5 * 32 * 32 * 9 * 16**2 + 5 * 64 * 64 * 9 * 8**2
    between = 16 * 32 * 9 * 16**2 + 32 * 64 * 9 * 8**2
    shortcuts = 16 * 32 * 16**2 + 32 * 64 * 8**2
    layers = layers_of(on_meta("resnet20"), (3, 32, 32))
    dense = cost(layers, {})
    assert dense.multiply_adds == first + stages + between + shortcuts + 64 * 10 == 40_813_184
    assert dense.weights == sum(mask.numel() for mask in ap.Masks.dense(ap.build("resnet20")).values())
    assert dense.bytes == 4 * dense.weights


@pytest.mark.parametrize(
    ("study", "millions"),
    [("table1", 40.8), ("table2", 398.1), ("table3", 264.9), ("table4", 88.1), ("demo", 0.76)],
)
def test_networks_of_the_studies(study: str, millions: float) -> None:
    layers = layers_of_study(read_study(study))
    assert layers is not None
    assert cost(layers, {}).multiply_adds / 1e6 == pytest.approx(millions, abs=0.06)


def test_resnet50_on_imagenet_is_the_literatures_4_1_billion() -> None:
    """The images need not be there."""
    layers = layers_of_study(read_study("table5", {"data.path": "/nowhere"}))
    assert layers is not None
    assert cost(layers, {}).multiply_adds == pytest.approx(4.09e9, rel=1e-3)


def test_a_layers_density_scales_its_part_alone() -> None:
    layers = {"a": LayerCost(100, 4), "b": LayerCost(10, 7)}
    assert cost(layers, {"a": 0.5}) == Cost(60, 270)
    assert cost(layers, {"a": 0.0, "b": 0.1}) == Cost(1, 7)


def test_masks_count_the_same_as_densities() -> None:
    """Each alive weight is used as often as its layer says."""
    model = ap.build("resnet8", in_channels=1)
    dense = ap.Masks.dense(model)
    masks = ap.prune_lowest(dense, ap.score("global_magnitude", model, dense), 40_000)
    layers = layers_of(on_meta("resnet8", in_channels=1), (1, 8, 8))
    by_hand = sum(int(mask.sum()) * layers[name].uses for name, mask in masks.items())
    densities = {name: float(mask.double().mean()) for name, mask in masks.items()}
    assert cost(layers, densities).multiply_adds == pytest.approx(by_hand)
    assert cost(layers, densities).weights == pytest.approx(masks.alive)


def test_grouped_convolutions_and_attention() -> None:
    with torch.device("meta"):
        grouped = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    assert layers_of(grouped, (8, 5, 5)) == {"weight": LayerCost(72, 25)}

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = attention

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.flatten(2).transpose(1, 2))

    found = layers_of(Tokens(), (16, 3, 3))
    assert {layer.uses for layer in found.values()} == {9}
    assert sum(layer.weights for layer in found.values()) == 4 * 16 * 16 + 2 * 16 * 32


def mine(path: Path | None = None) -> Dataset:
    """Data that nobody has registered: only their loader knows what they look like."""
    if path is None:
        raise ap.InputError("not here")
    return Dataset("mine", ("a", "b"), noise(4, 2, (1, 8, 8)), noise(4, 2, (1, 8, 8)))


def test_data_of_ones_own_are_looked_at_and_give_no_cost_where_they_cannot_be_had() -> None:
    study = read_study("demo", {"data": "tests.report.test_cost:mine", "data.path": "/here"})
    layers = layers_of_study(study)
    assert layers is not None
    assert layers["fc.weight"].weights == 64 * 2
    assert layers_of_study(read_study("demo", {"data": "tests.report.test_cost:mine"})) is None


def test_a_skeleton_is_the_network_that_is_trained() -> None:
    """The same weights by name and shape, on no device, from what the data are known to be."""
    training = read_study("demo").training
    dataset = training.dataset()
    real = training.build(len(dataset.classes), dataset.channels)
    assert training.outline() == ((1, 8, 8), 10)
    skeleton = training.skeleton(10, 1)
    assert all(parameter.is_meta for parameter in skeleton.parameters())
    assert {n: p.shape for n, p in skeleton.named_parameters()} == {n: p.shape for n, p in real.named_parameters()}
