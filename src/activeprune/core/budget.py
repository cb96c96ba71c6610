"""How many weights a cycle removes, and how many of them AP picks."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .errors import InputError


@dataclass(frozen=True)
class Budget:
    """p: the share of the alive weights that a cycle removes; q: AP's part of that share. Fractions, q <= p.

    With `a` weights alive, n = floor(p*a + 1/2) are removed, n_ap = floor(q*a) of them by AP and
    n_x = n - n_ap by method X. p and q count as the decimals that were written, so 0.07 of 100 is 7:

    >>> Budget(p=0.20, q=0.02).split(1000)
    (180, 20)
    >>> Budget(p=0.07).split(100)
    (7, 0)
    """

    p: float
    q: float = 0.0

    def __post_init__(self) -> None:
        p, q = _share("p", self.p), _share("q", self.q)
        if q > p:
            raise InputError(f"q = {self.q} is larger than p = {self.p}: AP's share q is a part of p")

    def split(self, alive: int) -> tuple[int, int]:
        """(n_x, n_ap) for `alive` weights; an error when the two would be nothing."""
        try:
            number = operator.index(alive)
        except TypeError as error:
            raise InputError(f"alive must be a whole number of weights, not {alive!r}") from error
        removed = math.floor(_share("p", self.p) * number + Fraction(1, 2))
        by_ap = math.floor(_share("q", self.q) * number)
        if number < 0 or removed == 0:
            raise InputError(f"nothing left to prune: p = {self.p} of {number} alive weights is no weight")
        return removed - by_ap, by_ap


def shared_out(count: int, sizes: Sequence[int]) -> list[int]:
    """`count` in proportion to the sizes, by largest remainder.

    >>> shared_out(5, [3, 3, 4])  # 1.5, 1.5 and 2: the one left over goes to the earlier
    [2, 1, 2]
    """
    total = max(sum(sizes), 1)
    shares = [count * size // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: -(count * sizes[i] % total))
    for i in by_remainder[: count - sum(shares)]:
        shares[i] += 1
    return shares


def _share(name: str, value: object) -> Fraction:
    """The number that was written: a float's shortest form is what its author typed."""
    try:
        number = Fraction(str(value))
    except (ValueError, ZeroDivisionError):  # "twenty", True, "1/0"
        number = Fraction(-1)
    if not 0 <= number <= 1:
        raise InputError(f"{name} = {value!r} is not a share between 0 and 1 (20 % is 0.20)")
    return number
