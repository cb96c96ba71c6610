"""Lengths of training: epochs and iterations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.training import Duration


@given(st.integers(0, 10_000), st.sampled_from(["ep", "it"]), st.integers(1, 500))
def test_a_length_reads_what_it_writes(count: int, unit: str, steps: int) -> None:
    length = Duration.read(f"{count}{unit}")
    assert Duration.read(str(length)) == length
    assert length.steps(steps) == (count * steps if unit == "ep" else count)


def test_a_bare_number_counts_epochs() -> None:
    assert Duration.read(3) == Duration.read("3") == Duration(3, "ep") != Duration(3, "it")


@pytest.mark.parametrize("wrong", ["3 epochs", "ep", "-1ep", "1.5ep", 2.5, True, None, "", "3epit"])
def test_what_is_no_length_is_refused(wrong: object) -> None:
    with pytest.raises(ap.InputError, match='such as "80ep" or "500it"'):
        Duration.read(wrong)


def test_a_length_is_never_negative() -> None:
    with pytest.raises(ap.InputError, match="a length = -2: at least 0"):
        Duration(-2)
