"""What is reported of a step, as it is kept and read again: the same bytes for the same result, so without times."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from ...core.pruning import Pruned
from ...training.duration import Duration
from ...training.result import EarlyStop, Epoch, Failure, Result
from .artifacts import RECORD, probe_part, record_bytes
from .entry import Damaged, Missing, unfit
from .folder import Store

T = TypeVar("T")
Json = dict[str, Any]
Real = Annotated[float, Field(strict=True)]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainRecord:
    """Of a training. Accuracies are fractions; one that failed has none, and says how."""

    accuracy: float | None
    best_epoch: int | None
    density: float
    early_stop: EarlyStop
    epochs: tuple[Epoch, ...]
    failure: Failure | None

    @classmethod
    def of(cls, result: Result, density: float) -> TrainRecord:
        """Of a training that has ended, under masks of a density."""
        best = None if result.failure else result.best
        return cls(
            accuracy=None if best is None else best.test_accuracy,
            best_epoch=None if best is None else best.epoch,
            density=density,
            early_stop=result.early_stop,
            epochs=result.epochs,
            failure=result.failure,
        )

    @property
    def validation_accuracy(self) -> float | None:
        """At the epoch that is reported."""
        return next((epoch.validation_accuracy for epoch in self.epochs if epoch.epoch == self.best_epoch), None)

    @property
    def failed(self) -> Json | None:
        """How it failed, as JSON has it: a loss that is no number is text there."""
        return None if self.failure is None else _sorted({**asdict(self.failure), "loss": str(self.failure.loss)})

    @property
    def lines(self) -> tuple[Json, ...]:
        """Its epochs, as JSON has them."""
        return tuple(_sorted(asdict(epoch)) for epoch in self.epochs)

    def as_bytes(self) -> bytes:
        """For the store."""
        return record_bytes({**asdict(self), "failure": self.failed})


@dataclass(frozen=True)
class PruneRecord:
    """Of a pruning: weights that are left, and those that X and AP removed; `shortfall` are those AP did not find."""

    alive: int
    total: int
    density: float
    by_method: int
    by_rule: int
    shortfall: int

    @classmethod
    def of(cls, pruned: Pruned) -> PruneRecord:
        """Of a pruning that is done."""
        masks = pruned.masks
        return cls(masks.alive, masks.total, masks.density, pruned.by_method, pruned.by_rule, pruned.shortfall)

    def as_bytes(self) -> bytes:
        """For the store."""
        return record_bytes(asdict(self))


@dataclass(frozen=True)
class _Rates:
    """What is read of dead-neuron rates, of the much more that `DeadNeurons.as_dict` tells."""

    static: Real
    dynamic: Real


@dataclass(frozen=True)
class _AllRates(_Rates):
    total: Real
    layers: dict[str, _Rates]


@dataclass(frozen=True)
class _Measured:
    unit: _AllRates
    channel: _AllRates


@dataclass(frozen=True)
class _Look:
    step: Annotated[int, Field(strict=True)]
    unit: _Rates | None = None  # none where a network has no activations that can be dead
    channel: _Rates | None = None


@dataclass(frozen=True)
class _Probe:
    probed: list[_Look]


_TRAIN, _PRUNE, _MEASURE = TypeAdapter(TrainRecord), TypeAdapter(PruneRecord), TypeAdapter(_Measured)
_PROBE = TypeAdapter(_Probe)


def train_record(store: Store, key: str) -> TrainRecord | None:
    """Of a training; None where it is missing, or was damaged and has been set aside."""
    data = _record(store, key)
    return None if data is None else _read(_TRAIN, data, key, RECORD)[1]


def prune_record(store: Store, key: str) -> PruneRecord | None:
    """The same of a pruning."""
    data = _record(store, key)
    return None if data is None else _read(_PRUNE, data, key, RECORD)[1]


def measure_record(store: Store, key: str) -> Json | None:
    """The same of a measurement, as `DeadNeurons.as_dict` has it."""
    data = _record(store, key)
    return None if data is None else _read(_MEASURE, data, key, RECORD)[0]


def outcome_of(record: TrainRecord | None) -> Json:
    """What a table tells of a training: all None where it is missing."""
    fields = {name: getattr(record, name, None) for name in ("density", "accuracy", "best_epoch")}
    return {**fields, "failure": None if record is None else record.failed}


def probe_bytes(every: Duration, images: int, probed: tuple[Json, ...]) -> bytes:
    """What a probe saw in a training, for the store."""
    return record_bytes({"every": str(every), "images": images, "probed": list(probed)})


def probed(store: Store, key: str, every: Duration | None) -> tuple[Json, ...]:
    """What a probe saw in a training, as far as that is in the store; `Damaged` if it is not what it was."""
    if every is None or not store.has(key, part := probe_part(every)):
        return ()
    record, _ = _read(_PROBE, store.get(key, part), key, part)
    return tuple(record["probed"])


def looks(store: Store, key: str, every: Duration | None) -> tuple[Json, ...]:
    """The same without those that saw nothing, in a network without activations that can be dead."""
    return tuple(seen for seen in probed(store, key, every) if seen.get("unit") and seen.get("channel"))


def _record(store: Store, key: str) -> bytes | None:
    if not store.has(key, RECORD):
        return None
    try:
        return store.get(key, RECORD)
    except Missing:
        return None
    except Damaged as damaged:
        _log.warning("%s", damaged)
        return None


def _read(shape: TypeAdapter[T], data: bytes, key: str, part: str) -> tuple[Any, T]:
    """A record as JSON has it, and in its shape."""
    try:
        record = json.loads(data)
        record_bytes(record)  # or else there are numbers in it that are none
        return record, shape.validate_python(record)
    except (ValueError, RecursionError) as error:
        raise unfit(key, part, f"is no record of such a step ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return " ".join(str(error).split())
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _sorted(record: Mapping[str, Any]) -> Json:
    return dict(sorted(record.items()))
