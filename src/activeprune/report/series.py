"""Numbers of a run in the form that figures draw: means and standard deviations over seeds, along λ or along time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..experiment.findings import Spread
from .trainings import Reported, Trainings, Value
from .wording import per_cent

T = TypeVar("T")
DENSITY_AXIS = "density λ (% of weights alive)"
Track = Callable[[Reported], Mapping[float, float]]  # a training's values by time


@dataclass(frozen=True)
class Point:
    """A mean over seeds, at a place x; `std` is the sample standard deviation, None for a single seed."""

    x: float
    mean: float
    std: float | None
    seeds: int = 1

    @property
    def low(self) -> float:
        """The lower end of the band; nothing that is drawn can be below 0."""
        return max(self.mean - (self.std or 0.0), 0.0)

    @property
    def high(self) -> float:
        """Its upper end."""
        return self.mean + (self.std or 0.0)


@dataclass(frozen=True)
class Tracked:
    """A quantity along the time of a training: its name with its unit, how it is read, and how it is drawn."""

    name: str
    track: Track
    scale: float = 100.0
    logarithmic: bool = False


@dataclass(frozen=True)
class Spot:
    """Values by seed at a place along an axis."""

    cycle: int
    x: float
    density: float
    values: Mapping[int, float]

    @property
    def spread(self) -> Spread:
        """Over seeds."""
        return Spread.of([*self.values.values()])

    @property
    def point(self) -> Point:
        """The mean of them."""
        spread = self.spread
        assert spread.mean is not None  # there are values
        return Point(self.x, spread.mean, spread.std, spread.seeds)


def spots(gathered: Trainings, variant: str, value: Value, x: Value | None = None) -> list[Spot]:
    """One for each cycle of which something is known, from the densest; at its density, or at the mean of `x`."""
    place = x or (lambda training: training.density)
    found = []
    for cycle in gathered.cycles:
        known = [(t, place(t), value(t)) for t in gathered.of(variant, cycle).values() if t.density is not None]
        here = [(t, at, v) for t, at, v in known if at is not None and v is not None and math.isfinite(v)]
        if here:
            density = _mean([t.density or 0.0 for t, _, _ in here])
            found.append(Spot(cycle, _mean([at for _, at, _ in here]), density, {t.seed: v for t, _, v in here}))
    return found


def by_variant(gathered: Trainings, value: Value, x: Value | None = None) -> dict[str, list[Spot]]:
    """Those of each variant that has any."""
    found = {variant: spots(gathered, variant, value, x) for variant in gathered.study.variants}
    return {variant: own for variant, own in found.items() if own}


def along_time(trainings: Iterable[Reported], track: Track) -> list[Point]:
    """A point for each time at which a training has a value; failed trainings are left out."""
    values: dict[float, list[float]] = defaultdict(list)
    for training in trainings:
        if training.failure is None:
            for time, value in track(training).items():
                if math.isfinite(value):
                    values[time].append(value)
    return [_quick_point(time, values[time]) for time in sorted(values)]


def dead(of: str, what: str) -> Value:
    """The dead-neuron rate at the end of a training: of "unit" or "channel"; "static", "dynamic" or "total"."""
    return lambda training: None if training.after is None else training.after[of][what]


def dead_in_training(of: str, what: str) -> Track:
    """The dead-neuron rates that were seen during a training, by epoch."""
    return lambda training: {probe["step"] / _steps_per_epoch(training): probe[of][what] for probe in training.probes}


def by_epoch(what: str) -> Track:
    """What the record of each epoch says, by the number of epochs that were done."""
    return lambda training: {
        epoch["epoch"] + 1: epoch[what] for epoch in training.epochs if epoch.get(what) is not None
    }


TRAINING_LOSS = Tracked("training loss", by_epoch("train_loss"), scale=1.0, logarithmic=True)
VALIDATION_ACCURACY = Tracked("validation accuracy (%)", by_epoch("validation_accuracy"))


def dynamic_rate(of: str) -> Tracked:
    """The dynamic dead-neuron rate of "unit" or "channel"."""
    return Tracked(f"dynamic DNR, {of}s (%)", dead_in_training(of, "dynamic"))


def by_layer(trainings: Iterable[Reported], layers: Callable[[Reported], Mapping[str, float]]) -> dict[str, float]:
    """Means over seeds of each layer's value, in the order of the layers."""
    values: dict[str, list[float]] = defaultdict(list)
    for training in trainings:
        for name, value in layers(training).items():
            values[name].append(value)
    return {name: _mean(of) for name, of in values.items()}


def densities(gathered: Trainings) -> list[float]:
    """Every λ that something is known of, from the densest."""
    found = {gathered.density(variant, c) for variant in gathered.study.variants for c in gathered.cycles}
    return sorted((density for density in found if density is not None), reverse=True)


def reported(gathered: Trainings, places: Sequence[float]) -> list[float]:
    """The densities to mark among those where something is drawn; those that differ by less than a rounding are one."""
    marked: list[float] = []
    for density in densities(gathered):
        known = any(math.isclose(place, density) for place in places)
        if known and not any(math.isclose(density, other, rel_tol=2e-3) for other in marked):
            marked.append(density)
    return marked


def density_margin(densities: Sequence[float]) -> float:
    """By which factor a log axis goes on beyond the densest and the sparsest.

    >>> density_margin([1.0, 1.0])
    1.02
    """
    share: float = (max(densities) / min(densities)) ** 0.03
    return max(share, 1.02)


def density_labels(densities: Sequence[float], apart: float, length: float = 1.0) -> list[str]:
    """What stands at each density on a log axis of a length: nothing where labels would be nearer than `apart`.

    The densest and the sparsest have theirs, and then from the sparsest on whoever has room.

    >>> density_labels([1.0, 0.8, 0.64, 0.512, 0.4096], 0.4)
    ['100', '', '64', '', '41']
    """
    most, least = max(densities), min(densities)
    span = math.log(most / least) or 1.0
    places = {density: math.log(most / density) / span * length for density in densities}
    kept = [most, least]
    for density in sorted(densities):
        if all(abs(places[density] - places[other]) >= apart for other in kept):
            kept.append(density)
    return [per_cent(density) if density in kept else "" for density in densities]


def over_seeds(gathered: Trainings) -> str:
    """Of how many seeds the means are, in words; a half-finished run has more of some cells than of others."""
    cells = [gathered.of(variant, cycle).values() for variant in gathered.study.variants for cycle in gathered.cycles]
    counts = {sum(training.accuracy is not None for training in cell) for cell in cells} - {0} or {1}
    if counts == {1}:
        return "one seed"
    return f"mean over {max(counts)} seeds" if len(counts) == 1 else f"mean over {min(counts)} to {max(counts)} seeds"


def remarks(gathered: Trainings) -> str:
    """How many seeds a mean is of, what a band is, and what is not in it."""
    failed = sum(training.failure is not None for training in gathered.trainings)
    missing = sum(training.missing for training in gathered.trainings)
    seeds = over_seeds(gathered)
    parts = [seeds if seeds == "one seed" else f"{seeds}, band: ± sample standard deviation"]
    parts += [f"{failed} of {len(gathered.trainings)} trainings failed and are left out"] if failed else []
    parts += [f"{missing} of {len(gathered.trainings)} trainings are still missing"] if missing else []
    return "; ".join(parts)


def some_of(several: Sequence[T], most: int) -> list[T]:
    """At most so many, evenly spread, the first and the last among them.

    >>> some_of(range(14), 5)
    [0, 3, 7, 10, 13]
    """
    if len(several) <= most:
        return [*several]
    return [several[round(place * (len(several) - 1) / (most - 1) + 1e-9)] for place in range(most)]


def _steps_per_epoch(training: Reported) -> float:
    last: Mapping[str, Any] | None = training.epochs[-1] if training.epochs else None
    return 1.0 if last is None else last["step"] / (last["epoch"] + 1)


def _quick_point(x: float, values: list[float]) -> Point:
    """In floating point: exact sums of fractions, for every epoch of every curve, would take seconds.

    Values that are all equal deviate by 0, since differences from one of them are what is added up.
    """
    first, seeds = values[0], len(values)
    shifts = [value - first for value in values]
    shift = sum(shifts) / seeds
    std = math.sqrt(sum((one - shift) ** 2 for one in shifts) / (seeds - 1)) if seeds > 1 else None
    return Point(x, first + shift, std, seeds)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
