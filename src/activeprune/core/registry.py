"""Functions found by name: methods, activation rules, and what later layers add."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import Any, ClassVar, Generic, TypeVar

from .errors import InputError, kind_of, unknown

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Registered:
    """A function and the name that it is found by; parameters with a default are options."""

    name: str
    function: Callable[..., Any]
    no_options: ClassVar[tuple[str, ...]] = ()  # parameters that are none, even with a default

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return summary_of(self.function)

    @property
    def options(self) -> dict[str, Any]:
        """Its options and their defaults."""
        return {
            p.name: p.default for p in self.parameters() if p.name not in self.no_options and p.default is not p.empty
        }

    def parameters(self) -> list[inspect.Parameter]:
        """Those of the function."""
        return list(inspect.signature(self.function).parameters.values())


T = TypeVar("T", bound=Registered)

_folders: list[str] = []  # where modules of strangers may be, too


def look_in(folder: str) -> None:
    """From now on `package.module:function` is looked for in a folder, too, behind all other places."""
    if folder not in _folders:
        _folders.append(folder)


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from name to thing that names the nearest neighbour of a misspelt name.

    An installed package may offer more through entry points of the group `group`: the module is imported when
    one of its names is first asked for, and registers it by itself or is a function to be registered under it.
    `prepare` is called before a stranger's module is imported.
    """

    def __init__(
        self, kind: str, group: str, make: Callable[..., T], prepare: Callable[[], None] = lambda: None
    ) -> None:
        self.kind = kind
        self.group = group
        self._make = make
        self._prepare = prepare
        self._known: dict[str, T] = {}
        self._origin: dict[str, str] = {}

    def register(self, name: str, **fields: Any) -> Callable[[Function], Function]:
        """A decorator that keeps `make(name, function, **fields)`, and leaves the function as it is.

        Only the same piece of source may register a name again.
        """
        if not name or not isinstance(name, str):  # the decorator without its parentheses, say
            raise InputError(f"{self.kind}: a name in quotation marks is needed, got {name!r}")

        def keep(function: Function) -> Function:
            thing, origin = self._make(name, function, **fields), origin_of(function)
            if self._origin.get(name, origin) != origin:
                raise InputError(f"{self.kind} {name!r} is taken by {self._origin[name]}: choose another name")
            self._known[name], self._origin[name] = thing, origin
            return function

        return keep

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str):
            raise InputError(f"{self.kind}: a name is needed, not {kind_of(name)} (known: {', '.join(self)})")
        if name not in self._known and name in (offered := self._offered()):
            self._load(offered[name])
        if name not in self._known:
            raise unknown(self.kind, name, self)
        return self._known[name]

    def find(self, name: str) -> T:
        """A thing by its name, or by `package.module:function` for one that nobody registered."""
        if not isinstance(name, str) or ":" not in name:
            return self[name]
        module, _, attribute = name.partition(":")
        try:
            self._prepare()
            sys.path.extend(folder for folder in _folders if folder not in sys.path)
            function = getattr(import_module(module), attribute)
        except Exception as error:  # whatever a stranger's module does when it is imported
            raise InputError(f"{self.kind} {name!r} cannot be imported: {type(error).__name__}: {error}") from error
        if not callable(function):
            raise InputError(f"{self.kind} {name!r} is no function but {function!r}")
        return self._make(name, function)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._offered()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._known, *self._offered()}))

    def __len__(self) -> int:
        return len({*self._known, *self._offered()})

    def _load(self, point: EntryPoint) -> None:
        where = f"{self.kind} {point.name!r} of the installed package behind {point.value!r}"
        try:
            self._prepare()
            loaded = point.load()
        except Exception as error:  # whatever a stranger's module does when it is imported
            raise InputError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
        if point.name not in self._known:
            if not callable(loaded):
                raise InputError(f"{where} is no function but {loaded!r}")
            self.register(point.name)(loaded)

    def _offered(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}


def import_files_of(package: str, folders: Iterable[str]) -> None:
    """Imports every file of a package (`__name__`, `__path__`), so that what it registers is known.

    It is called at the end of the package's own file, where all that the others ask of it is there.
    """
    for module in iter_modules(folders):
        import_module(f"{package}.{module.name}")


def origin_of(function: Callable[..., Any]) -> str:
    """Where a function was written: `package.module.name`."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def summary_of(function: Callable[..., Any]) -> str:
    """The first line of a function's documentation."""
    return (inspect.getdoc(function) or "").partition("\n")[0]


def check_options(what: str, options: Iterable[str], known: Mapping[str, Any]) -> None:
    """Refuses an option that does not exist."""
    for option in options:
        if option not in known:
            raise unknown(f"option of {what}", option, known)
