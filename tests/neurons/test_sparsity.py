"""Sparsity measures against slow, obvious versions, and beside dead-neuron rates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import activeprune as ap
from activeprune.neurons import gini, hoyer, sparsity
from tests.helpers import Net
from tests.neurons.makers import TWO, linear, measured

NUMBERS = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=2, max_size=30)


@given(NUMBERS)
def test_gini_is_the_mean_difference_of_all_pairs(numbers: list[float]) -> None:
    sizes = [abs(x) for x in numbers]
    n, total = len(sizes), sum(sizes)
    pairs = sum(abs(a - b) for a in sizes for b in sizes)
    expected = pairs / (2 * n * total) if total else 0.0
    assert gini(torch.tensor(numbers, dtype=torch.float64)) == pytest.approx(expected, abs=1e-9)


@given(NUMBERS)
def test_hoyer_is_its_formula(numbers: list[float]) -> None:
    n, one = len(numbers), sum(abs(x) for x in numbers)
    two = math.sqrt(sum(x * x for x in numbers))
    expected = (math.sqrt(n) - one / two) / (math.sqrt(n) - 1) if two else 0.0
    assert hoyer(torch.tensor(numbers, dtype=torch.float64)) == pytest.approx(expected, abs=1e-9)


@given(NUMBERS, st.floats(0.01, 100.0))
def test_neither_scale_nor_order_nor_sign_matters(numbers: list[float], factor: float) -> None:
    values = torch.tensor(numbers, dtype=torch.float64)
    for measure in (gini, hoyer, sparsity):
        assert measure(values.flip(0) * -factor) == pytest.approx(measure(values), abs=1e-9)
        assert 0 <= measure(values) <= 1


def test_tiny_and_huge_numbers_are_measured_too() -> None:
    assert hoyer(torch.tensor([0.0, 1e-30])) == hoyer(torch.tensor([1e30, 0.0])) == 1.0
    assert gini(torch.full((1000,), 0.1)) == pytest.approx(0.0, abs=1e-12)
    assert hoyer(torch.tensor([7.0])) == gini(torch.tensor([7.0])) == 0.0
    assert sparsity(torch.zeros(3, 3)) == 1.0


@pytest.mark.parametrize("measure", [gini, hoyer, sparsity])
def test_what_cannot_be_measured_is_refused(measure) -> None:
    with pytest.raises(ap.InputError, match="no numbers"):
        measure(torch.tensor([]))
    with pytest.raises(ap.InputError, match="not finite"):
        measure(torch.tensor([1.0, float("nan")]))


# -- beside dead-neuron rates


def test_companions_are_measures_of_the_weights_and_of_each_samples_activations() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1], [3, 3]]), nn.ReLU())
    found = measured(model, TWO, {"0": [2]}, companions=True).companions
    assert found is not None
    assert (found.parameters, found.weights.sparsity) == (1 - 4 / 6, 1 - 4 / 6)
    assert found.layers["0.weight"] == found.weights
    rows = [torch.tensor([3.0, 1.0, 0.0]), torch.tensor([3.0, 0.0, 0.0])]
    by_row = [ap.neurons.measures(row) for row in rows]
    for measure in ("sparsity", "gini", "hoyer"):
        mean = sum(getattr(one, measure) for one in by_row) / 2
        assert getattr(found.activations["1"], measure) == pytest.approx(mean, abs=1e-12)
    assert measured(model, TWO).companions is None


def test_what_has_no_samples_has_no_sparsity_of_a_sample() -> None:
    model = Net(
        lambda net, x: torch.relu(net.b(torch.relu(net.a(x)).flatten(0, 1)[:4])),
        a=linear([[1, 1], [1, -1]]),
        b=linear([[1, 0]]),
    )
    found = measured(model, torch.stack([TWO, TWO, TWO]), companions=True)
    assert set(found.unit.layers) == {"relu", "relu#2"}
    assert set(found.companions.activations) == {"relu"}
    assert found.companions.activations["relu"].sparsity == pytest.approx(1 / 4)  # x - y of one of two tokens


def test_outputs_that_are_not_finite_have_no_sparsity() -> None:
    model = nn.Sequential(linear([[1, 0]]), nn.ReLU())
    with pytest.raises(ap.InputError, match="the outputs of '1' are not all finite: their sparsity cannot be measured"):
        ap.dead_neurons(model, None, [torch.tensor([[torch.inf, 0.0]])], companions=True)
