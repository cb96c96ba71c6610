"""Errors for the person who made the mistake."""

import pytest

import activeprune as ap
from activeprune.core.errors import whole


def test_truth_is_no_number() -> None:
    with pytest.raises(ap.InputError, match="batch = True: a whole number is needed"):
        whole("batch", True, 0)
