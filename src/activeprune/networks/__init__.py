"""Networks, found by name: the paper's, and a door for one's own.

A builder is a function `build(num_classes, **options)` that returns an `nn.Module`; options need a default. Every
module of this folder is imported here, so a new network is a new function in one file and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from torch import nn

from ..core.errors import InputError, unknown
from ..core.registry import Registry, check_options, import_files_of, options_of, origin_of, summary_of

Init = Literal["kaiming_normal", "native"]
Builder = TypeVar("Builder", bound=Callable[..., nn.Module])


@dataclass(frozen=True)
class Network:
    """A builder and how its weights start."""

    name: str
    builder: Callable[..., nn.Module]
    init: Init = "native"  # what a training uses unless it says otherwise
    version: int = 1  # counted up when it becomes another network: results are kept by it

    def __post_init__(self) -> None:
        if "num_classes" not in inspect.signature(self.builder).parameters:
            raise InputError(f"network {self.name!r}: its builder must take num_classes")
        if self.init not in get_args(Init):
            raise unknown("init", self.init, get_args(Init))

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return summary_of(self.builder)

    @property
    def options(self) -> dict[str, Any]:
        """Its options and their defaults."""
        return options_of(self.builder, "num_classes")


NETWORKS: Registry[Network] = Registry("network", "activeprune.networks", make=Network)


def network(name: str, *, init: Init = "native", version: int = 1) -> Callable[[Builder], Builder]:
    """Registers a network under `name`; `version` is counted up when its code makes another network of it."""
    NETWORKS.check_name(name)

    def register(builder: Builder) -> Builder:
        NETWORKS.add(name, Network(name, builder, init, version), origin_of(builder))
        return builder

    return register


def find(name: str) -> Network:
    """A network by its name, or by `package.module:builder` for one that nobody registered."""
    return NETWORKS.find(name)


def build(name: str, num_classes: int = 10, **options: Any) -> nn.Module:
    """A new network by name, with the weights of torch's random state.

    >>> sum(p.numel() for p in build("resnet20").parameters())
    272474
    """
    found = find(name)
    if num_classes < 1:
        raise InputError(f"num_classes = {num_classes}: at least 1 is needed")
    check_options(f"network {name!r}", options, found.options)
    return found.builder(num_classes=num_classes, **options)


import_files_of(__name__, __path__)
