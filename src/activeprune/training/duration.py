"""Lengths of training: "80ep" are epochs, "500it" are iterations, and the two cannot be confused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer

from ..core.errors import InputError, whole

Unit = Literal["ep", "it"]
MOST = 10**9  # epochs or iterations: more is a slip


@dataclass(frozen=True)
class Duration:
    """A whole number of epochs or of iterations.

    >>> Duration.read("80ep").steps(351), Duration.read("500it").steps(351), str(Duration.read(3))
    (28080, 500, '3ep')
    """

    count: int
    unit: Unit = "ep"

    def __post_init__(self) -> None:
        if whole("a length", self.count, 0) > MOST:
            raise InputError(f"a length of {self.count} is too much: at most {MOST:,} are possible")

    @classmethod
    def read(cls, value: Any) -> Duration:
        """From "80ep" or "500it"; a bare number counts epochs."""
        if isinstance(value, Duration):
            return value
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        found = re.fullmatch(r"(\d+)(ep|it)?", text.strip()) if isinstance(text, str) else None
        if found is None:
            raise InputError(f'a length is a number of epochs or iterations such as "80ep" or "500it", not {value!r}')
        return cls(int(found[1]), "it" if found[2] == "it" else "ep")

    def steps(self, steps_per_epoch: int) -> int:
        """The same length in iterations."""
        return self.count * (steps_per_epoch if self.unit == "ep" else 1)

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"


Length = Annotated[Duration, BeforeValidator(Duration.read), PlainSerializer(str)]
