"""Intervals and tests against scipy, brute force and numbers from printed tables."""

from itertools import product
from math import isclose
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activeprune.experiment.findings import Spread
from activeprune.report import student
from activeprune.report.statistics import Interval, Paired, holm, interval, paired, sign_flip, together

FREEDOM = st.integers(1, 200)
ACCURACIES = st.lists(st.integers(0, 10_000).map(lambda right: right / 10_000), min_size=2, max_size=9)


def by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


@pytest.mark.parametrize(
    ("freedom", "printed"), [(1, 12.706), (2, 4.303), (4, 2.776), (7, 2.365), (30, 2.042), (120, 1.980)]
)
def test_quantiles_are_those_of_printed_tables(freedom: int, printed: float) -> None:
    assert round(student.quantile(0.975, freedom), 3) == printed
    assert round(student.quantile(0.025, freedom), 3) == -printed


@given(st.floats(-50, 50), FREEDOM)
def test_the_distribution_is_scipys(t: float, freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert isclose(student.two_sided(t, freedom), 2 * stats.t.sf(abs(t), freedom), rel_tol=1e-9, abs_tol=1e-14)


@given(st.floats(0.2, 40), st.floats(0.2, 40), st.floats(0, 1))
def test_the_incomplete_beta_function_is_scipys(a: float, b: float, x: float) -> None:
    special = pytest.importorskip("scipy.special")
    assert isclose(student.incomplete_beta(a, b, x), special.betainc(a, b, x), rel_tol=1e-9, abs_tol=1e-13)


@given(st.floats(0.001, 0.999), FREEDOM)
def test_a_quantile_is_the_inverse_of_the_distribution(probability: float, freedom: int) -> None:
    tail = student.two_sided(student.quantile(probability, freedom), freedom) / 2
    assert isclose(tail, min(probability, 1 - probability), rel_tol=1e-9)


@pytest.mark.parametrize("probability", [0, 1, -0.1, 2])
def test_a_quantile_of_no_probability_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="more than 0"):
        student.quantile(probability, 3)


@given(ACCURACIES, ACCURACIES)
def test_paired_test_and_interval_are_scipys(first: list[float], second: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    count = min(len(first), len(second))
    found = paired(by_seed(first), by_seed(second))
    assert found.seeds == count
    if found.interval is None:
        differences = [a - b for a, b in zip(first[:count], second[:count], strict=True)]
        assert max(differences) - min(differences) < 1e-11
        return
    told = stats.ttest_rel(first[:count], second[:count])
    assert isclose(found.p, told.pvalue, rel_tol=1e-6, abs_tol=1e-12)
    theirs = told.confidence_interval(0.95)
    assert isclose(found.interval.low, theirs.low, rel_tol=1e-6, abs_tol=1e-9)
    assert isclose(found.interval.high, theirs.high, rel_tol=1e-6, abs_tol=1e-9)
    if abs(found.p - 0.05) > 1e-9:
        assert (found.direction != 0) == (found.p < 0.05)


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=8))
def test_the_sign_flip_test_goes_through_all_patterns(differences: list[int]) -> None:
    patterns = list(product((1, -1), repeat=len(differences)))
    sums = [abs(sum(sign * value for sign, value in zip(signs, differences, strict=True))) for signs in patterns]
    expected = sum(one >= abs(sum(differences)) for one in sums) / len(patterns)
    assert sign_flip([value / 100 for value in differences]) == expected


def test_five_seeds_cannot_be_significant_by_signs_alone() -> None:
    assert sign_flip([0.01, 0.02, 0.03, 0.04, 0.05]) == 2 / 2**5
    assert sign_flip([0.1]) is None
    assert sign_flip([0.1] * 17) is None


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holms_values_are_their_definition(values: list[float]) -> None:
    ordered = sorted(values)
    for value, adjusted in zip(values, holm(values), strict=True):
        expected = max((len(values) - rank) * p for rank, p in enumerate(ordered) if p <= value)
        assert isclose(adjusted, min(1.0, expected))


def test_only_common_seeds_count() -> None:
    found = paired({0: 0.9, 2: 0.8, 5: 0.7}, {2: 0.7, 5: 0.65, 6: 0.1})
    assert list(found.values) == [2, 5]
    assert isclose(found.mean, 0.075)


def test_verdicts() -> None:
    base = by_seed([0.5, 0.6, 0.7])
    assert paired(by_seed([0.60, 0.71, 0.80]), base).verdict == "higher"
    assert paired(by_seed([0.40, 0.49, 0.60]), base).verdict == "lower"
    assert paired(by_seed([0.60, 0.40, 0.80]), base).verdict == "no difference shown"
    assert paired({0: 0.9}, base).verdict == "one seed: no test"
    assert paired({7: 0.9}, base).verdict == "no common seed"
    assert paired(base, base).verdict == "equal in every seed"
    same = paired(by_seed([0.6, 0.7, 0.8]), base)
    assert same.verdict == "the same in every seed: no test"
    assert same.p is None
    assert same.p_exact == 0.25


def test_a_correction_can_take_a_difference_back() -> None:
    clear = paired(by_seed([0.60, 0.72, 0.81, 0.9]), by_seed([0.5, 0.6, 0.7, 0.8]))
    near = paired(by_seed([0.55, 0.62, 0.74, 0.81]), by_seed([0.5, 0.6, 0.7, 0.8]))
    assert near.p is not None
    assert 0.025 < near.p < 0.05
    family = together([near, clear, near, paired({0: 0.5}, {0: 0.4})])
    assert [one.comparisons for one in family] == [3, 3, 3, 3]
    assert family[1].verdict == "higher"
    assert family[0].verdict == "higher, not after Holm"
    assert family[3].p_holm is None


def test_intervals() -> None:
    values = [0.90, 0.91, 0.93]
    found = interval(Spread.of(values))
    assert isinstance(found, Interval)
    assert isclose((found.low + found.high) / 2, fmean(values))
    assert isclose(found.high - found.low, 2 * 4.302653 * 0.0152752523 / 3**0.5, rel_tol=1e-6)
    assert interval(Spread.of([0.9])) is None
    assert interval(Spread.of([])) is None


def test_json_is_plain() -> None:
    told = paired({0: 0.9, 1: 0.8}, {0: 0.8, 1: 0.75}).as_dict()
    assert told["seeds"] == 2
    assert isinstance(told["interval"], list)
    assert isinstance(paired({}, {}), Paired)
