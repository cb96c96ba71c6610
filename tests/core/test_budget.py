"""n = floor(p·a + 1/2) go, floor(q·a) of them by AP, in the decimals that were written."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap

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
        ("twenty", 0.0, "p = 'twenty'"),
        (0.02, 0.2, "q = 0.2 is larger than p = 0.02"),
    ],
)
def test_what_is_no_share_is_refused_by_name_and_value(p: float, q: float, says: str) -> None:
    with pytest.raises(ap.InputError, match=says):
        ap.Budget(p, q)


def test_pruning_everything_is_allowed_and_pruning_nothing_is_not() -> None:
    assert ap.Budget(p=1.0).split(3) == (3, 0)
    with pytest.raises(ap.InputError, match=r"nothing left to prune: p = 0.2 of 2 alive"):
        ap.Budget(p=0.2).split(2)
