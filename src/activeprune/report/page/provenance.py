"""Where every number of a run comes from: its trainings, their keys in the store, and who computed them when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from ...experiment.findings import GRANULARITIES, PARTS
from ..gathering import Gathered
from ..looks import LOOKS
from ..trainings import Reported
from ..wording import NONE, counted, duration, percent

TORCH = re.compile(r", torch (\S+)$")
DEAD = tuple(  # heads of columns, and the rates in them
    (f"dead {of}s in %: {what}" if what == "dynamic" else what, of, what)
    for of, what in product(GRANULARITIES, reversed(PARTS))
)


@dataclass(frozen=True)
class Row:
    """A training as the page tells of it: done, failed or missing; `others` are keys of what else belongs to it."""

    training: Reported
    state: str
    others: Mapping[str, str]
    where: str
    seconds: str
    finished: str

    @property
    def accuracy(self) -> str:
        """In per cent, or why there is none."""
        return self.state if self.training.accuracy is None else f"{100 * self.training.accuracy:.2f}"

    @property
    def dead(self) -> list[str]:
        """The rates of dead neurons after training, in per cent, in the order of `DEAD`."""
        after = self.training.after
        return [NONE if after is None else f"{100 * after[of][what]:.2f}" for _, of, what in DEAD]


@dataclass(frozen=True)
class CellProvenance:
    """The trainings of a variant and cycle, under the name that links use."""

    name: str
    variant: str
    cycle: int
    density: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Behind:
    """All trainings that a variant rests on, under the name that links use: a line with key and time for each."""

    name: str
    variant: str
    trainings: str
    lines: str


def anchor(run: int, variant: str | None = None, cycle: int | None = None) -> str:
    """The name of a place in the provenance of the page's run of this number: of a cell, a variant, or all of it.

    >>> anchor(1, "ap_pro", 13), anchor(1, "ap_pro"), anchor(1)
    ('r1-ap_pro-13', 'r1-ap_pro', 'r1')
    """
    return "-".join(str(part) for part in (f"r{run}", variant, cycle) if part is not None)


def provenance(run: Gathered, number: int) -> list[CellProvenance]:
    """All trainings of a run, by variant and cycle."""
    places = {machine: letter for letter, machine in machines(run).items()}
    return [
        CellProvenance(
            anchor(number, variant, cycle),
            LOOKS[variant].label,
            cycle,
            _density(run, variant, cycle),
            tuple(_row(training, places) for training in found.values()),
        )
        for variant in run.study.variants
        for cycle in run.cycles
        if (found := run.of(variant, cycle))
    ]


def behind(run: Gathered, number: int) -> list[Behind]:
    """What trainings and device time are counted of, by variant; a training that several need is listed by each."""
    return [
        Behind(
            anchor(number, variant),
            LOOKS[variant].label,
            counted(len(work), "training"),
            "\n".join(f"{one.key} {'missing' if one.seconds is None else duration(one.seconds)}" for one in work),
        )
        for variant in run.study.variants
        for work in [run.work_of(variant)]
    ]


def machines(run: Gathered) -> dict[str, str]:
    """Those that computed something, each under a letter."""
    return {chr(ord("A") + place % 26) * (1 + place // 26): name for place, name in enumerate(run.machines)}


def versions(run: Gathered) -> dict[str, str]:
    """Of what the trainings were computed with."""
    every = [training.provenance for training in run.trainings]
    known = {
        "activeprune": [str(how["activeprune"]) for how in every if "activeprune" in how],
        "torch": [found[1] for machine in run.machines if (found := TORCH.search(machine))],
        "Python": [str(how["python"]) for how in every if "python" in how],
    }
    return {name: ", ".join(sorted({*several})) for name, several in known.items() if several}


def engines(run: Gathered) -> str:
    """The engines that trained, and how many networks at once."""
    packs: dict[str, set[int]] = {}
    for training in run.trainings:
        if "engine" in training.provenance:
            packs.setdefault(str(training.provenance["engine"]), set()).add(int(training.provenance.get("pack", 1)))
    return "; ".join(name if max(of) == 1 else f"{name}, {_span(of)} networks at once" for name, of in packs.items())


def dates(run: Gathered) -> str:
    """From the first training that was finished to the last; nothing where none says when."""
    found = sorted(str(t.provenance["finished"]) for t in run.trainings if "finished" in t.provenance)
    if not found:
        return ""
    first, last = _readable(found[0]), _readable(found[-1])
    return first if first == last else f"{first} to {last}"


def _span(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _row(training: Reported, places: Mapping[str, str]) -> Row:
    how = training.provenance
    state = "missing" if training.missing else "done" if training.failure is None else "failed"
    place = [places.get(str(how.get("machine")), ""), _engine(how)]
    return Row(
        training,
        state,
        training.keys,
        ", ".join(part for part in place if part) or NONE,
        duration(float(how["seconds"])) if "seconds" in how else NONE,
        _readable(str(how["finished"])) if "finished" in how else NONE,
    )


def _engine(how: Mapping[str, Any]) -> str:
    if "engine" not in how:
        return ""
    pack = int(how.get("pack", 1))
    return str(how["engine"]) if pack == 1 else f"{how['engine']}, {counted(pack, 'network')} at once"


def _readable(time: str) -> str:
    """ISO's times, for people.

    >>> _readable("2026-11-16T01:30:46Z")
    '2026-11-16 01:30:46 UTC'
    """
    return time.replace("T", " ").replace("Z", " UTC")


def _density(run: Gathered, variant: str, cycle: int) -> str:
    known = run.density(variant, cycle)
    return NONE if known is None else percent(known)
