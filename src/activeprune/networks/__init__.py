"""Networks, found by name: the paper's, and a door for one's own.

A builder is a function `build(num_classes, **options)` that returns an `nn.Module`; options need a default. Every
module of this folder is imported here, so a new network is a new function in one file and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args

from torch import nn

from ..core.errors import InputError, unknown, whole
from ..core.registry import Registered, Registry, check_options, import_files_of
from ..extras import repair_torchvision

Init = Literal["kaiming_normal", "native"]
LOADING = ("pretrained", "weights")  # options that let a builder load somebody's weights, with us and with torchvision
Builder = TypeVar("Builder", bound=Callable[..., nn.Module])


@dataclass(frozen=True)
class Network(Registered):
    """A builder and how its weights start."""

    no_options: ClassVar = ("num_classes",)
    init: Init = "native"  # what a training uses unless it says otherwise
    version: int = 1  # counted up when it becomes another network: results are kept by it

    def __post_init__(self) -> None:
        if not any(given.name == "num_classes" or given.kind is given.VAR_KEYWORD for given in self.parameters()):
            raise InputError(f"network {self.name!r}: its builder must take num_classes")
        if self.init not in get_args(Init):
            raise unknown("init", self.init, get_args(Init))


NETWORKS: Registry[Network] = Registry("network", "activeprune.networks", Network, repair_torchvision)


def network(name: str, *, init: Init = "native", version: int = 1) -> Callable[[Builder], Builder]:
    """Registers a network under `name`; `version` is counted up when its code makes another network of it."""
    return NETWORKS.register(name, init=init, version=version)


def build(name: str, num_classes: int = 10, **options: Any) -> nn.Module:
    """A new network by name, with the weights of torch's random state.

    >>> sum(p.numel() for p in build("resnet20").parameters())
    272474
    """
    found = NETWORKS.find(name)
    num_classes = whole("num_classes", num_classes, 1)
    check_options(f"network {name!r}", options, found.options)
    built: nn.Module = found.function(num_classes=num_classes, **options)
    return built


import_files_of(__name__, __path__)
