"""How a result came about: who computed it, where, when and how fast. No result depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class StepTime:
    """What is told of a training's speed: trainings that are alike have the same `of`."""

    of: str
    seconds_per_step: Seconds
    steps_per_epoch: Number


@dataclass(frozen=True)
class Provenance:
    """Of one entry; None is what it does not tell, or tells in a way that cannot be understood."""

    kind: str | None = None  # of its step
    inputs: dict[str, str] | None = None  # keys by role
    machine: str | None = None
    host: str | None = None
    python: str | None = None
    activeprune: str | None = None
    finished: str | None = None  # in UTC
    seconds: Seconds | None = None
    images_per_second: Seconds | None = None  # of trainings, in their steps alone
    engine: str | None = None  # of trainings side by side, as the next one
    pack: Number | None = None  # how many there were
    speed: StepTime | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Provenance:
        """What a store tells of an entry, or as much of it as can be understood."""
        known = sound(stored)
        return cls(**{name: shape.validate_python(known[name]) for name, shape in _SHAPES.items() if name in known})

    def as_dict(self) -> dict[str, Any]:
        """For the store: what is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


_SHAPES: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(hint) for name, hint in get_type_hints(Provenance, include_extras=True).items()
}


def sound(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored without what cannot be understood.

    >>> sound({"seconds": 2.5, "pack": "many", "weather": "fine"})
    {'seconds': 2.5, 'weather': 'fine'}
    """
    return {name: value for name, value in stored.items() if name not in _SHAPES or _fits(_SHAPES[name], value)}


def _fits(shape: TypeAdapter[Any], value: Any) -> bool:
    try:
        return shape.validate_python(value) is not None
    except ValidationError:
        return False
