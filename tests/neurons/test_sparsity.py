"""Sparsity measures against slow, obvious versions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.neurons import gini, hoyer, sparsity

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


def test_tiny_and_huge_numbers() -> None:
    assert hoyer(torch.tensor([0.0, 1e-30])) == hoyer(torch.tensor([1e30, 0.0])) == 1.0
    assert gini(torch.full((1000,), 0.1)) == pytest.approx(0.0, abs=1e-12)
    assert hoyer(torch.tensor([7.0])) == gini(torch.tensor([7.0])) == 0.0
    assert sparsity(torch.zeros(3, 3)) == 1.0


@pytest.mark.parametrize("measure", [gini, hoyer, sparsity])
def test_what_cannot_be_measured(measure) -> None:
    with pytest.raises(ap.InputError, match="no numbers"):
        measure(torch.tensor([]))
    with pytest.raises(ap.InputError, match="not finite"):
        measure(torch.tensor([1.0, float("nan")]))
