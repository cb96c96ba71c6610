"""What every file of settings is read into: frozen values that are checked, with errors in the reader's words."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ..core.errors import InputError, unknown


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise InputError(f"a number is needed, not {value}")
    return value


Count = Annotated[int, Field(strict=True, ge=1)]
Number = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Share = Annotated[Number, Field(ge=0, lt=1)]
Scalar = bool | int | float | str


IN_OUR_WORDS = {  # what pydantic finds wrong
    "tuple_type": "a list such as [a, b] is needed",
    "int_type": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "float_type": "a number is needed",
    "float_parsing": "a number is needed",
    "finite_number": "a finite number is needed",
    "bool_type": "true or false is needed",
    "bool_parsing": "true or false is needed",
    "string_type": "a text is needed",
    "model_type": "a name is needed, or a name and options such as {{name: x, option: value}}",
    "path_type": "the name of a folder is needed",
    "greater_than": "more than {gt} is needed",
    "greater_than_equal": "at least {ge} is needed",
    "less_than": "less than {lt} is needed",
    "less_than_equal": "at most {le} is possible",
}


class Settings(BaseModel):
    """Frozen, hashable, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """From keys and values, with an error in the reader's words.

        >>> from .settings import Training
        >>> Training.read({"network": "resnet8", "bach": 8})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        activeprune.core.errors.InputError: unknown key 'bach': did you mean 'batch'? (known: augment, ...
        """
        if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
            raise InputError(f"keys and values are needed, not {values!r}")
        try:
            return cls(**values)
        except ValidationError as error:
            raise _reworded(error, cls) from error


class Choice(Settings):
    """Something by name, and its options where they are not the default: `x`, or `{name: x, option: value}`."""

    name: str
    options: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    @abstractmethod
    def known_options(cls, name: str) -> Mapping[str, Any]:
        """The options of what has this name, and their defaults; an error if nothing has."""

    @model_validator(mode="before")
    @classmethod
    def _from_mapping(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            return value
        fields = cls.model_fields.keys() - {"options"}
        options = _pairs(value.get("options", ()))
        options |= {str(key): option for key, option in value.items() if key not in cls.model_fields}
        known = cls.known_options(value["name"])
        for key, option in options.items():
            if key not in known:
                raise unknown(f"option of {value['name']!r}", key, {*known, *fields} - {"name"})
            if not isinstance(option, Scalar):
                raise InputError(f"option {key} = {option!r}: a number, a text, true or false is needed")
        chosen = {key: option for key, option in options.items() if option != known[key]}
        return {**{key: value[key] for key in fields if key in value}, "options": tuple(sorted(chosen.items()))}


def _pairs(options: Any) -> dict[str, Any]:
    """Options as a study has them, or as it is written down."""
    try:
        return dict(options)
    except (TypeError, ValueError) as error:
        raise InputError(f"options = {options!r}: names and values are needed, such as {{size: 32}}") from error


def _reworded(error: ValidationError, model: type[BaseModel]) -> InputError:
    """One problem of several, a misspelt key before all others: the key, the value and what is allowed."""
    first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    *outer, last = [str(part) for part in first["loc"]] or [""]
    key = ".".join([*outer, last])
    if first["type"] == "extra_forbidden":
        for part in outer:
            inner = model.model_fields[part].annotation
            assert isinstance(inner, type)
            assert issubclass(inner, BaseModel)
            model = inner
        return unknown(f"key of {'.'.join(outer)}" if outer else "key", last, model.model_fields)
    if first["type"] == "missing":
        return InputError(f"key {key!r} is missing")
    if first["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", first["ctx"]["expected"])
        if "," in str(first["input"]):
            return InputError(f"{key} = {first['input']!r}: several are a list, such as [{', '.join(known[:2])}]")
        return InputError(f"{key} = {first['input']!r}: {unknown('value', first['input'], known)}")
    message = first["msg"].removeprefix("Value error, ")
    if (words := IN_OUR_WORDS.get(first["type"])) is not None:
        message = words.format(**first.get("ctx", {}))
    return InputError(f"{key} = {first['input']!r}: {message[0].lower()}{message[1:]}" if key else message)
