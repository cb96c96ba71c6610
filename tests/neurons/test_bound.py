"""Theorem 1's bound against its formula, its limits and its corollary."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.neurons import layer_bound
from activeprune.neurons.rates import rates_of, rates_without_identity

SHARES = st.floats(0.0, 1.0)
STEP = 1e-6


@given(SHARES, SHARES, st.floats(0.1, 50.0))
def test_it_is_the_papers_formula(static: float, dynamic: float, c: float) -> None:
    assume(static + dynamic <= 1 and dynamic > 1e-12 and static < 1 - 1e-9)
    formula = c * 64 * (1 - static - dynamic * (1 - math.log((1 - static) / dynamic) / c))
    assert ap.information_bound(64, static, dynamic, c) == pytest.approx(formula, rel=1e-9, abs=1e-9)


def test_where_nothing_or_everything_is_dead_it_is_a_limit() -> None:
    assert ap.information_bound(10, 0.0, 0.0, 2.0) == 20.0
    assert ap.information_bound(10, 0.4, 0.0, 2.0) == pytest.approx(12.0)
    assert ap.information_bound(10, 1.0, 0.0, 2.0) == 0.0
    assert ap.information_bound(10, 0.0, 1.0, 2.0) == 0.0  # every neuron always dead
    assert ap.information_bound(10, 0.4, 1e-300, 2.0) == pytest.approx(12.0)
    assert ap.information_bound(10, 1 - 1e-16, 0.0, 2.0) == pytest.approx(0.0, abs=1e-14)


@given(SHARES, SHARES, st.floats(0.1, 50.0))
def test_more_static_neurons_always_lower_it(static: float, dynamic: float, c: float) -> None:
    assume(static + dynamic + STEP <= 1)
    assert ap.information_bound(64, static + STEP, dynamic, c) <= ap.information_bound(64, static, dynamic, c)


@given(SHARES, st.floats(1e-3, 1.0), st.floats(0.1, 50.0))
def test_more_dynamic_neurons_lower_it_where_the_corollarys_condition_holds(s: float, d: float, c: float) -> None:
    assume(s + d + STEP <= 1)
    before, after = (ap.information_bound(64, s, rate, c) for rate in (d, d + STEP))
    if c >= math.log((1 - s) / d) - 1:
        assert after <= before + 1e-12
    elif c < math.log((1 - s) / (d + STEP)) - 1:
        assert after > before


def test_where_the_condition_does_not_hold_more_dead_neurons_raise_it() -> None:
    """A small constant and few dead neurons: a neuron that is sometimes dead tells more than one that never is."""
    c, static = 1.0, 0.0
    assert c < math.log(1 / 0.01) - 1
    assert ap.information_bound(100, static, 0.02, c) > ap.information_bound(100, static, 0.01, c)


@given(st.floats(0.0, 0.9), st.floats(0.1, 5.0))
def test_the_corollarys_condition_is_where_the_bound_turns(static: float, c: float) -> None:
    """It rises until C = ln((1 - S) / D) - 1, that is D = (1 - S) / e^(C + 1), and falls from there on."""
    turn = (1 - static) * math.exp(-c - 1)
    before, top, after = (ap.information_bound(1, static, turn * factor, c) for factor in (0.9, 1.0, 1.1))
    assert before < top > after


def test_a_measured_layer_is_bounded_by_its_own_rates() -> None:
    """Of four neurons and two samples: one pruned, one always dead, one dead for the first sample."""
    rates = rates_of(torch.tensor([2, 2, 1, 0]), torch.tensor([True, False, False, False]), samples=2)
    assert (rates.static, rates.dynamic, rates.peak) == (0.25, 0.375, 1.0)
    expected = ap.information_bound(4, 0.25, 0.375, ap.capacity_constant(1000, 2 / 3))
    assert layer_bound(rates, levels=1000) == expected
    sometimes = rates_of(torch.tensor([1, 0, 0]), None, samples=2)
    assert layer_bound(sometimes, 1000) == ap.information_bound(3, 0.0, 1 / 6, ap.capacity_constant(1000, 0.5))
    assert layer_bound(rates_without_identity(4, 8, torch.tensor([3]), None)) is None


def test_the_constant_grows_with_levels_and_with_the_most_dead_neuron() -> None:
    assert ap.capacity_constant(3, 0.0) == pytest.approx(math.log(2))
    assert ap.capacity_constant(1000, 0.9) == pytest.approx(math.log(9990))
    assert ap.capacity_constant(1000, 0.99) > ap.capacity_constant(1000, 0.9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ap.information_bound(0, 0.1, 0.1, 1.0), "dim = 0"),
        (lambda: ap.information_bound(10, -0.1, 0.1, 1.0), "static = -0.1: a share from 0 to 1"),
        (lambda: ap.information_bound(10, 0.1, 1.1, 1.0), "dynamic = 1.1"),
        (lambda: ap.information_bound(10, float("nan"), 0.1, 1.0), "static = nan"),
        (lambda: ap.information_bound(10, 0.6, 0.6, 1.0), "no more than all neurons can be dead"),
        (lambda: ap.information_bound(10, 0.1, 0.1, 0.0), "c = 0.0: a number above 0"),
        (lambda: ap.capacity_constant(2, 0.5), "levels = 2"),
        (lambda: ap.capacity_constant(100, 1.0), "p_s = 1.0"),
    ],
)
def test_outside_its_domain_it_is_an_error(call, message: str) -> None:
    with pytest.raises(ap.InputError) as caught:
        call()
    assert message in str(caught.value)
