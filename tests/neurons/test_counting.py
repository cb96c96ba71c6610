"""What counts as a dead neuron, and which activations are looked at."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import activeprune as ap
from tests.helpers import Net
from tests.neurons.makers import TWO, measured, pointwise


def test_part_of_a_map_may_be_enough() -> None:
    image = torch.tensor([[[[1.0, -1.0], [-1.0, -1.0]]]])
    model = nn.Sequential(pointwise([[1], [-1]]), nn.ReLU())
    assert [measured(model, image, share=share).channel.dead for share in (1.0, 0.76, 0.75, 0.25)] == [0, 0, 1, 2]


@pytest.mark.parametrize(("kind", "exact"), [(F.gelu, 1), (F.silu, 0), (F.mish, 0), (F.hardswish, 1)])
def test_smooth_activations_are_dead_below_a_threshold(kind, exact: int) -> None:
    """Of -20 and 0.001 they make next to nothing, of -20 some make 0; what is no number is never dead."""
    inputs = torch.tensor([[-20.0, 0.001, 3.0, -0.5, float("nan")]])
    model = Net(lambda net, x: kind(x), a=nn.Linear(1, 1))
    dead = [measured(model, inputs, **options).unit.dead for options in ({}, {"threshold": 1e-9}, {"threshold": 10.0})]
    assert dead == [2, exact, 4]


def test_saturation_is_no_death_and_neither_is_what_is_no_number() -> None:
    values = torch.tensor([[7.0, 6.0, -1.0, float("nan"), float("inf"), -0.0]])
    model = Net(lambda net, x: F.relu6(x), a=nn.Linear(1, 1))
    assert measured(model, values).unit.dead == 2


@pytest.mark.parametrize("kind", [torch.tanh, torch.sigmoid, F.leaky_relu, F.elu, F.hardtanh, lambda x: x.clamp(-1, 1)])
def test_where_nothing_can_be_dead_nothing_is_counted(kind) -> None:
    model = Net(lambda net, x: torch.relu(net.b(kind(net.a(x)))), a=nn.Linear(2, 2), b=nn.Linear(2, 2))
    assert list(measured(model, TWO).unit.layers) == ["relu"]
    with pytest.raises(ap.InputError, match=r"^Net calls no activation function whose output can be dead$"):
        measured(Net(lambda net, x: kind(net.a(x)), a=nn.Linear(2, 2)), TWO)


def test_layers_are_chosen_by_pattern() -> None:
    model, image = ap.build("resnet8"), torch.randn(2, 3, 8, 8)
    every = measured(model, image)
    inner = measured(model, image, exclude="*#2")
    assert list(inner.unit.layers) == ["relu", "blocks.0:relu", "blocks.1:relu", "blocks.2:relu"]
    assert all(inner.unit.layers[name] == every.unit.layers[name] for name in inner.unit.layers)
    assert list(measured(model, image, include=["blocks.1*", "relu"]).unit.layers) == [
        "relu",
        "blocks.1:relu",
        "blocks.1:relu#2",
    ]
    with pytest.raises(ap.InputError, match=r"unknown activation in include 'block\.1:relu': did you mean"):
        measured(model, image, include=["relu", "block.1:relu"])
    with pytest.raises(ap.InputError, match="include and exclude leave no activation"):
        measured(model, image, include="relu", exclude="relu")
