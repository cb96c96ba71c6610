"""What a training leaves behind, and what it needs to go on in the middle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..core.errors import InputError
from ..files import whole_file

State = dict[str, Tensor]
Snapshot = Callable[[], State]  # of a moment; asked later, it brings the state to the CPU
EarlyStop = Literal["best_validation", "best_validation_loss", "last"]


@dataclass(frozen=True)
class Epoch:
    """The record of one epoch. Accuracies are fractions; those of training are running means over the epoch."""

    epoch: int  # the first is 0
    step: int  # steps done at its end
    lr: float  # of its last step
    train_loss: float
    train_accuracy: float
    validation_loss: float
    validation_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Failure:
    """A loss that is no number: when, and at which learning rate."""

    step: int
    epoch: int
    lr: float
    loss: float

    def __str__(self) -> str:
        return f"loss {self.loss} at step {self.step} (epoch {self.epoch}, learning rate {self.lr:.4g})"


@dataclass(frozen=True, eq=False)
class Result:
    """θ* and how it came about. After a `failure` the state is the last good one, and there is no accuracy."""

    state: State
    epochs: tuple[Epoch, ...]
    early_stop: EarlyStop = "best_validation"
    failure: Failure | None = None
    checkpoint: Checkpoint | None = None  # of a training that stopped before its end, to go on from there
    probed: tuple[dict[str, Any], ...] = ()  # what a probe saw on the way
    seconds: float = 0.0  # in all, with evaluation
    images_per_second: float = 0.0  # in training steps alone

    @property
    def best(self) -> Epoch:
        """The epoch whose test accuracy is reported."""
        if self.failure is not None:
            raise InputError(f"a failed training has no accuracy: {self.failure}")
        return best_epoch(self.epochs, self.early_stop)

    @property
    def accuracy(self) -> float:
        """Early-stop accuracy: on the test images, at the epoch that the validation images chose."""
        return self.best.test_accuracy


def best_epoch(epochs: Sequence[Epoch], rule: EarlyStop) -> Epoch:
    """The epoch to report, the earliest on a tie. Test images have no say."""
    if rule == "last":
        return epochs[-1]
    if rule == "best_validation_loss":
        return min(epochs, key=lambda epoch: epoch.validation_loss)
    return max(epochs, key=lambda epoch: epoch.validation_accuracy)


class ForeignCheckpoint(InputError):
    """A checkpoint that does not belong to the training that it was given to."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A training between two epochs. Its random state is the epoch number."""

    epoch: int  # epochs done
    state: State
    optimizer: State
    epochs: tuple[Epoch, ...] = ()
    of: str = ""  # the training that it belongs to
    seconds: float = 0.0
    probed: tuple[dict[str, Any], ...] = ()

    def save(self, path: str | Path) -> None:
        """Writes one file; an interrupted write leaves the former one whole."""
        groups = {"state": self.state, "optimizer": self.optimizer}
        plain = torch.contiguous_format
        tensors = {
            f"{group}/{name}": t.clone(memory_format=plain) for group, of in groups.items() for name, t in of.items()
        }
        epochs = [asdict(epoch) for epoch in self.epochs]
        header = {"epoch": self.epoch, "epochs": epochs, "of": self.of, "seconds": self.seconds}
        if self.probed:
            header["probed"] = list(self.probed)
        header["sha256"] = _digest(tensors, header)
        try:
            content = save(tensors, metadata={"checkpoint": json.dumps(header)})
            with whole_file(Path(path)) as unfinished:  # safetensors would write under a name of its own first
                unfinished.write_bytes(content)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path} cannot be written: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> Checkpoint:
        """Reads what `save` wrote, if it is still what was written."""
        try:
            with safe_open(path, "pt") as file:
                header = json.loads((file.metadata() or {})["checkpoint"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise InputError(f"{path} is no checkpoint of a training: {error}") from error
        if header.pop("sha256", None) != _digest(tensors, header):
            raise InputError(f"{path} is damaged: its bytes are not those that were written")
        groups: dict[str, State] = {"state": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            group, _, rest = name.partition("/")
            groups[group][rest] = tensor
        epochs = tuple(Epoch(**epoch) for epoch in header["epochs"])
        return cls(
            epoch=header["epoch"],
            state=groups["state"],
            optimizer=groups["optimizer"],
            epochs=epochs,
            of=header["of"],
            seconds=header["seconds"],
            probed=tuple(header.get("probed", ())),
        )


def _digest(tensors: State, header: Mapping[str, Any]) -> str:
    """A checksum of all that a checkpoint holds."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
