"""SynFlow by hand."""

import pytest
import torch
from torch import nn

import activeprune as ap
from tests.helpers import SmallNet


def test_synflow_by_hand_on_a_linear_network() -> None:
    """R = Σ |B| |A| 1; the score of one weight is the sum of the products of all paths through it."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    model[0].weight.data = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    model[2].weight.data = torch.tensor([[-5.0, 6.0]])
    masks = ap.Masks.dense(model)
    scores = ap.score("synflow", model, masks, [torch.zeros(4, 2)])
    assert scores["0.weight"].tolist() == [[5, 10], [18, 24]]
    assert scores["2.weight"].tolist() == [[15, 42]]
    assert sum(float(s) for s in scores["0.weight"].sum(1)) == float(scores["2.weight"].sum())  # flow is conserved


def test_synflow_takes_the_absolute_value_of_everything() -> None:
    """With a negative bias the plain network would pass no flow at all."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    for parameter in model.parameters():
        parameter.data.fill_(-1.0)
    scores = ap.score("synflow", model, ap.Masks.dense(model), [torch.zeros(1, 2)])
    assert scores["0.weight"].tolist() == [[1, 1], [1, 1]]
    assert scores["2.weight"].tolist() == [[3, 3]]


def test_synflow_prunes_in_rounds_and_never_kills_a_layer_that_has_more_than_it_needs() -> None:
    """One round at 99 % empties layers; a hundred rounds keep a path through every one (its paper's theorem)."""
    model = nn.Sequential(nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 5))
    masks, batches = ap.Masks.dense(model), [torch.zeros(1, 50)]
    count = round(0.995 * masks.alive)
    many = ap.prune_cycle("synflow", model, masks, count, batches=batches).masks
    assert many.alive == masks.alive - count
    assert all(mask.any() for mask in many.values())
    once = ap.prune_lowest(masks, ap.score("synflow", model, masks, batches), count)
    assert not all(mask.any() for mask in once.values())


def test_synflow_needs_an_input_that_can_be_all_ones() -> None:
    model = SmallNet()
    with pytest.raises(ap.InputError, match="synflow needs a network whose only input is a floating-point tensor"):
        ap.score("synflow", model, ap.Masks.dense(model), [torch.zeros(2, 3, dtype=torch.long)])
