"""Numbers that a person passes in."""

from __future__ import annotations

import operator
from typing import Any

from ..core.errors import InputError


def whole(what: str, value: Any, least: int) -> int:
    """A whole number of at least `least`.

    >>> whole("batch", 128, 1)
    128
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InputError(f"{what} = {value!r}: a whole number is needed") from error
    if number < least:
        raise InputError(f"{what} = {number}: at least {least} is needed")
    return number
