"""A report of one or several runs: what they say alone and together, each thing worked out once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from .claims import Claim, claims, claims_table
from .gathering import Gathered
from .layout import Section
from .sweeps import sweep_tables
from .tables import section

if TYPE_CHECKING:
    from .figures import Printed


@dataclass(frozen=True)
class Live:
    """A page that is written again and again: when this one was, and after how many seconds to look for another."""

    updated: str
    every: int


class Report:
    """Runs, no two of one name, and what tables, figures and page are made of: it does not change."""

    def __init__(self, runs: Iterable[Gathered]) -> None:
        self.runs = tuple(told_apart(runs))

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The tables of each run, in their order."""
        return tuple(section(run) for run in self.runs)

    @cached_property
    def claims(self) -> list[Claim]:
        """What the runs say to the paper's claims."""
        return claims(self.runs)

    @cached_property
    def together(self) -> Section:
        """What the runs say together; the claims are its last table."""
        several = len(self.runs) > 1
        tables = (*sweep_tables(self.runs), claims_table(self.claims, several))
        return Section("All runs" if several else "The paper's text", tables)

    @cached_property
    def printed(self) -> tuple[Printed, ...]:
        """The printed figures of each run."""
        from .figures import Printed  # matplotlib takes a second to come

        return tuple(Printed(run) for run in self.runs)


def told_apart(runs: Iterable[Gathered]) -> list[Gathered]:
    """Runs of the same name are numbered, so that no two have one.

    >>> told_apart([])
    []
    """
    read = list(runs)
    again = Counter(run.title for run in read)
    named: dict[str, Gathered] = {}
    for run in read:
        numbered = (f"{run.title} ({number})" for number in count(1))
        free = next(name for name in numbered if name not in {*again, *named})
        own = run if again[run.title] == 1 else replace(run, title=free)
        named[own.title] = own
    return [*named.values()]
