"""n = floor(p·a + 1/2) go, floor(q·a) of them by AP, in the decimals that were written."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.core.budget import shared_out

decimals = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)


@given(decimals, decimals, st.integers(1, 10**9))
def test_counts_agree_with_exact_fractions(a: float, b: float, alive: int) -> None:
    q, p = sorted((a, b))
    exact_p, exact_q = Fraction(str(p)), Fraction(str(q))
    removed = (exact_p * alive + Fraction(1, 2)).__floor__()
    if removed == 0:
        with pytest.raises(ap.InputError, match="nothing left to prune"):
            ap.Budget(p, q).split(alive)
        return
    n_x, n_ap = ap.Budget(p, q).split(alive)
    assert n_ap == (exact_q * alive).__floor__()
    assert n_x + n_ap == removed
    assert n_x >= 0


def test_binary_neighbours_of_decimals_do_not_matter() -> None:
    assert 0.07 * 100 == 7.000000000000001  # what floats would say
    assert 0.29 * 100 == 28.999999999999996
    assert ap.Budget(p=0.29, q=0.29).split(100) == (0, 29)
    assert ap.Budget(p=0.07, q=0.07).split(100) == (0, 7)


@given(st.integers(100, 10**9), st.lists(st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.1, 0.2]), min_size=13, max_size=13))
def test_whatever_ap_takes_the_density_after_each_of_13_cycles_is_the_same(total: int, shares: list[float]) -> None:
    alive = plain = total
    for q in shares:
        alive -= sum(ap.Budget(p=0.2, q=q).split(alive))
        plain -= sum(ap.Budget(p=0.2).split(plain))
        assert alive == plain


def test_the_callers_decimal_precision_does_not_matter() -> None:
    with localcontext() as context:
        context.prec = 4
        assert ap.Budget(p=0.18).split(20_035_018) == (3_606_303, 0)


def test_half_a_weight_is_rounded_up() -> None:
    assert ap.Budget(p=0.5).split(5) == (3, 0)
    assert ap.Budget(p=0.5, q=0.5).split(5) == (1, 2)


@pytest.mark.parametrize(
    ("p", "q", "says"),
    [
        (1.2, 0.0, "p = 1.2"),
        (-0.1, 0.0, "p = -0.1"),
        (0.2, -0.02, "q = -0.02"),
        (0.2, 2, "q = 2"),
        (float("nan"), 0.0, "p = nan"),
        (0.2, float("inf"), "q = inf"),
        (True, 0.0, "p = True"),
        (np.True_, 0.0, "p = np.True_"),
        ("twenty", 0.0, "p = 'twenty'"),
        ("1/0", 0.0, "p = '1/0'"),
        (0.2, None, "q = None"),
        (0.02, 0.2, "q = 0.2 is larger than p = 0.02"),
    ],
)
def test_what_is_no_share_is_refused_by_name_and_value(p: float, q: float, says: str) -> None:
    with pytest.raises(ap.InputError, match=says):
        ap.Budget(p, q)


@pytest.mark.parametrize("p", [Decimal("0.20"), Fraction(1, 5), "0.20", np.float32(0.2), np.float64(0.2)])
def test_other_kinds_of_numbers_are_understood(p: object) -> None:
    assert ap.Budget(p=p).split(np.int64(1000)) == (200, 0)


@pytest.mark.parametrize("alive", [10.0, "10", None, -10])
def test_alive_is_a_whole_number(alive: object) -> None:
    with pytest.raises(ap.InputError, match=r"whole number of weights|nothing left to prune"):
        ap.Budget(p=0.2).split(alive)


def test_pruning_everything_is_allowed_and_pruning_nothing_is_not() -> None:
    assert ap.Budget(p=1.0).split(3) == (3, 0)
    assert ap.Budget(p=1.0, q=1.0).split(1) == (0, 1)
    with pytest.raises(ap.InputError, match=r"nothing left to prune: p = 0.2 of 2 alive"):
        ap.Budget(p=0.2).split(2)


# -- the same fraction of every layer


@pytest.mark.parametrize(
    ("alive", "count", "expected"),
    [
        ([10, 10, 10], 6, [2, 2, 2]),
        ([10, 20, 30], 12, [2, 4, 6]),
        ([7, 7, 7], 7, [3, 2, 2]),  # 2⅓ each: the one left over goes to the first layer
        ([5, 3, 2], 4, [2, 1, 1]),  # 2.0, 1.2, 0.8: the largest remainder is the last layer's
        ([3, 3, 4], 5, [2, 1, 2]),  # 1.5, 1.5, 2.0: a tie, to the earlier layer
        ([1, 1, 98], 50, [1, 0, 49]),  # 0.5, 0.5, 49
        ([4, 0, 4], 3, [2, 0, 1]),  # an empty layer gives nothing
        ([2, 3], 5, [2, 3]),
        ([2, 3], 0, [0, 0]),
    ],
)
def test_layer_quotas_by_hand(alive: list[int], count: int, expected: list[int]) -> None:
    assert shared_out(count, alive) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.data())
def test_layer_quotas_add_up_and_are_the_exact_share_rounded(alive: list[int], data: st.DataObject) -> None:
    total = sum(alive)
    count = data.draw(st.integers(0, total))
    quotas = shared_out(count, alive)
    assert sum(quotas) == count
    assert all(0 <= quota <= a for quota, a in zip(quotas, alive, strict=True))
    assert all(abs(quota * total - count * a) < total for quota, a in zip(quotas, alive, strict=True) if total)
