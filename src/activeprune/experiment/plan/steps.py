"""The steps of a study: data, not closures. Each has a key that is known before anything has run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

from ...core.activation import RULES
from ...core.methods import METHODS, Scope
from ...data import DATASETS
from ...networks import NETWORKS
from ...training import Training
from ...training.settings import OF_THE_IMAGES, OF_THE_NETWORK
from ..store.entry import KEY_DIGITS

Shape = tuple[Training, int, int | None]
Mode = Literal["cycle", "solo", "end"]

READ_BY_MEASURING = (*OF_THE_NETWORK, *OF_THE_IMAGES)
READ_BY_PRUNING = (*READ_BY_MEASURING, "batch", "label_smoothing")


@dataclass(frozen=True)
class Step:
    """A pure function's name and arguments.

    Its key is a hash of its kind, that kind's version, the fields that differ from their defaults, and the keys of the
    steps among them. Where data are, and which device computes, are not in it.
    """

    kind: ClassVar[str]  # its name in keys and in the store
    version: ClassVar[int] = 1  # counted up when the same arguments give another result

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits."""
        text = json.dumps([self.kind, self.version, self._identity()], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return self.kind

    @property
    def inputs(self) -> dict[str, Step]:
        """The steps that it needs, by role."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Step)}

    def _identity(self) -> dict[str, Any]:
        """What its key is made of, as JSON has it."""
        values = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                values[field.name] = _plain(value)
        return values


@dataclass(frozen=True)
class Init(Step):
    """The weights of a cycle, drawn from (seed, "init", cycle)."""

    kind = "init"

    training: Training
    seed: int
    cycle: int

    def _identity(self) -> dict[str, Any]:
        """Of the training only what the network is: other learning rates start from the same weights."""
        training = identity(self.training)
        network: dict[str, Any] = {key: training[key] for key in OF_THE_NETWORK if key in training}
        return {"seed": self.seed, "cycle": self.cycle, "data": training["data"]["name"], **network}


@dataclass(frozen=True)
class Train(Step):
    """A training from a state, under masks, over some epochs."""

    kind = "train"

    training: Training
    seed: int
    start: Init | Train
    masks: Prune | None = None  # None: dense
    first: int = 0
    last: int | None = None
    resume: Train | None = None  # goes on where that one stopped, optimiser and all: the same result, sooner

    @property
    def shape(self) -> Shape:
        """Trainings of one shape differ in seed, start and masks alone, and can go through their steps together."""
        return self.training, self.first, self.last

    @property
    def title(self) -> str:
        """Its seed, and how far the network is pruned."""
        under = "dense" if self.masks is None else f"after cycle {self.masks.cycle}, λ {self.masks.density:.1%}"
        return f"seed {self.seed} train {under}"

    def _identity(self) -> dict[str, Any]:
        return {name: value for name, value in super()._identity().items() if name != "resume"}


@dataclass(frozen=True)
class Prune(Step):
    """One pruning of a network: method X removes its share, AP its own.

    `mode` cycle: X and then AP. `solo`: all by AP's metric. `end`: AP alone, q of what is alive.
    """

    kind = "prune"

    training: Training
    seed: int
    cycle: int
    trained: Init | Train
    start: Init | Train | None  # what AP measures movement from; None without AP
    masks: Prune | None  # before; None: dense
    method: str
    p: float
    q: float = 0.0
    options: tuple[tuple[str, Any], ...] = ()
    rule: str = "ap"
    scope: Scope | None = None
    score_batches: int | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    mode: Mode = "cycle"

    @property
    def title(self) -> str:
        """Its seed, cycle and method."""
        return f"seed {self.seed} cycle {self.cycle} prune ({self.method}{', AP' if self.q else ''})"

    @property
    def density(self) -> float:
        """λ after it, but for rounding to whole weights: what is left is 1 - p of what was there."""
        left, step = 1.0, self
        while True:
            left *= 1 - (step.q if step.mode == "end" else step.p)
            if step.masks is None:
                return left
            step = step.masks

    def _identity(self) -> dict[str, Any]:
        """Of the training only what a pruning reads, and versions where they are not the first."""
        values = super()._identity()
        values["training"] = {key: value for key, value in values["training"].items() if key in READ_BY_PRUNING}
        versions = {"method": METHODS[self.method].version, "rule": RULES[self.rule].version}
        return values | {f"{what}_version": version for what, version in versions.items() if version != 1}


@dataclass(frozen=True)
class Measure(Step):
    """The dead neurons of a network on training images."""

    kind = "measure"

    training: Training
    seed: int
    network: Init | Train
    masks: Prune | None  # put in place first; None: dense
    images: int | None = None  # None: all

    @property
    def title(self) -> str:
        """Its seed, how far the network is pruned, and whether it is trained."""
        after = isinstance(self.network, Train) and _key(self.network.masks) == _key(self.masks)
        under = "dense" if self.masks is None else f"λ {self.masks.density:.1%}"
        return f"seed {self.seed} measure {under} {'after' if after else 'before'} its training"

    def _identity(self) -> dict[str, Any]:
        """Of the training only what tells the network and its images."""
        values = super()._identity()
        values["training"] = {key: value for key, value in values["training"].items() if key in READ_BY_MEASURING}
        return values


def _key(step: Step | None) -> str | None:
    return None if step is None else step.key


def identity(training: Training) -> dict[str, Any]:
    """What distinguishes a training: its settings that are not the default, without where the data are.

    A folder of images is what is in it: names and sizes of its files. Of data that nobody vouches for, where they are
    does count.
    """
    settings: dict[str, Any] = training.pinned().model_dump(mode="json", exclude_defaults=True)
    source = DATASETS.find(training.data.name)
    if source.same_everywhere or source.fingerprint is not None:
        settings["data"].pop("path", None)
    for what, version in (("network", NETWORKS.find(training.network.name).version), ("data", source.version)):
        if version != 1:
            settings[what]["version"] = version
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, Step):
        return value.key
    return identity(value) if isinstance(value, Training) else value
