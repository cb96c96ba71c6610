"""Errors for the person who made the mistake."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

LISTED = 3  # names in a message


class InputError(ValueError):
    """Something that was passed in cannot be right; the message says what, where and what would be.

    Nothing has been changed when it is raised.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that does not exist, with the nearest name that does.

    >>> print(unknown("method", "lmap", ["lamp", "random"]))
    unknown method 'lmap': did you mean 'lamp'? (known: lamp, random)
    >>> print(unknown("method", "magic", ["lamp", "random"]))
    unknown method 'magic' (known: lamp, random)
    """
    names = sorted(known)
    near = get_close_matches(str(name), names, n=1) or get_close_matches(str(name).lower(), names, n=1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    listing = ", ".join(names) or "none"
    return InputError(f"unknown {kind} {name!r}{hint} (known: {listing})")


def first_line(error: BaseException) -> str:
    """What another library's error says, without the pages that may follow, or its kind.

    >>> first_line(RuntimeError("out of memory\\nmore")), first_line(KeyError())
    ('out of memory', 'KeyError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def in_a_line(error: BaseException) -> str:
    """Its kind, and what it says.

    >>> in_a_line(ValueError("no")), in_a_line(KeyError())
    ('ValueError: no', 'KeyError')
    """
    kind, says = type(error).__name__, first_line(error)
    return kind if says == kind else f"{kind}: {says}"


def kind_of(thing: object) -> str:
    """What a thing is, in a few words.

    >>> kind_of(int), kind_of({})
    ('the class int', 'a dict')
    """
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"


def listed(names: Iterable[str]) -> str:
    """A few of many names, for an error message.

    >>> listed(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    every = list(names)
    shown = ", ".join(repr(name) for name in every[:LISTED])
    return shown if len(every) <= LISTED else f"{shown} and {len(every) - LISTED} more"


def whole(what: str, value: Any, least: int) -> int:
    """A whole number of at least `least`.

    >>> whole("batch", 128, 1)
    128
    """
    try:
        number = operator.index(value)
    except TypeError as error:
        raise InputError(f"{what} = {value!r}: a whole number is needed") from error
    if isinstance(value, bool):
        raise InputError(f"{what} = {value}: a whole number is needed")
    if number < least:
        raise InputError(f"{what} = {number}: at least {least} is needed")
    return number
