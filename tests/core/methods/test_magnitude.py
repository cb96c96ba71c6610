"""Methods that look at the weights alone, against a slow, obvious implementation of each formula."""

import math

import pytest
import torch
from hypothesis import given
from torch import Tensor

import activeprune as ap
from activeprune.core.methods import METHODS
from activeprune.core.methods.magnitude import lamp
from activeprune.core.randomness import stable_seed
from tests.helpers import SmallNet, layers, random_masks


@pytest.mark.parametrize(
    ("method", "scope"), [("global_magnitude", "global"), ("layer_magnitude", "layer"), ("imp", "global")]
)
def test_magnitude_methods_are_absolute_values(method: str, scope: str) -> None:
    model = SmallNet()
    scores = ap.score(method, model, ap.Masks.dense(model))
    assert all(torch.equal(scores[name], p.detach().abs()) for name, p in model.named_parameters() if name in scores)
    assert METHODS[method].scope == scope


def slow_lamp(weight: Tensor, mask: Tensor) -> Tensor:
    """Sort the alive weights by (square, index); each is divided by the sum from itself to the end."""
    flat = [(float(w) ** 2, i) for i, w in enumerate(weight.flatten().double()) if mask.flatten()[i]]
    ranked = sorted(flat)
    scores = torch.zeros(weight.numel(), dtype=torch.float64)
    for position, (square, index) in enumerate(ranked):
        below = math.fsum(other for other, _ in ranked[position:])
        scores[index] = square / below if below else 0.0
    return scores.view(weight.shape)


@given(layers())
def test_lamp_is_the_share_of_the_weights_at_or_above_in_order_of_square_then_index(drawn: tuple) -> None:
    tensors, masks = drawn
    for name, weight in tensors.items():
        expected = slow_lamp(weight, masks[name])
        torch.testing.assert_close(
            lamp(weight, masks[name])[masks[name]].double(), expected[masks[name]], rtol=1e-6, atol=0
        )


@given(layers(tied=False))
def test_lamp_without_ties_and_in_float64(drawn: tuple) -> None:
    tensors, masks = drawn
    for name, weight in tensors.items():
        weight, mask = weight.double() * math.pi, masks[name]
        torch.testing.assert_close(lamp(weight, mask)[mask], slow_lamp(weight, mask)[mask], rtol=1e-12, atol=0)


def test_lamp_by_hand() -> None:
    weight = torch.tensor([2.0, -1.0, 1.0, 3.0])
    scores = lamp(weight, torch.tensor([True, True, True, False]))
    assert scores[:3].tolist() == pytest.approx([1.0, 1 / 6, 1 / 5])  # of the two ones, the first has more behind it


def test_the_largest_weight_of_a_layer_always_scores_one_under_lamp() -> None:
    model = SmallNet()
    masks = random_masks(model)
    assert all(scores[masks[name]].max() == 1 for name, scores in ap.score("lamp", model, masks).items())


def test_random_is_seeded_uniform_and_the_same_in_every_layout() -> None:
    model = SmallNet()
    masks = ap.Masks.dense(model)
    first, again, other = (ap.score("random", model, masks, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in masks)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])
    values = torch.cat([score.flatten() for score in first.values()])
    assert 0 <= values.min() < values.max() < 1
    assert abs(values.mean() - 0.5) < 0.05
    moved = ap.score("random", model.to(memory_format=torch.channels_last), masks, seed=3)
    assert all(torch.equal(first[name], moved[name]) for name in masks)


def test_a_random_score_is_the_next_uniform_number_of_seed_and_cycle() -> None:
    model = SmallNet()
    draw = torch.Generator().manual_seed(stable_seed(5, "method", 2))
    for name, found in ap.score("random", model, ap.Masks.dense(model), seed=5, cycle=2).items():
        assert torch.equal(found, torch.rand(model.get_parameter(name).shape, generator=draw))
