"""Everything that decides one training, except seed, start state and masks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import nn

from ..core.errors import InputError
from ..data import DATASETS, Augmentation, Batching, Dataset, Feed, Normalisation, Outline, load, split
from ..data import feed as feed_of
from ..data import outline as outline_of
from ..machine import device as usable_device
from ..networks import LOADING, NETWORKS, Init, build
from ..networks.initial import initial
from .checked import Choice, Count, Number, Positive, Scalar, Settings, Share
from .duration import Duration, Length
from .result import EarlyStop

RetrainingSchedule = Literal["full", "finetune", "s_cyc"]


class NetworkChoice(Choice):
    """A network by name and its options: `resnet20`, or `{name: resnet20, shortcut: pad}`."""

    @classmethod
    def known_options(cls, name: str) -> Mapping[str, Any]:
        """Of a network."""
        return NETWORKS.find(name).options

    @property
    def pretrained(self) -> bool:
        """Whether its weights are somebody's."""
        return any(value for name, value in self.options if name in LOADING)

    @property
    def without_weights(self) -> dict[str, Any]:
        """The options that it is built with where weights do not matter."""
        return {name: value for name, value in self.options if name not in LOADING}


class DataChoice(Choice):
    """A data set by name: `cifar10`, or `{name: cifar10, path: …, limit: 2000}`, with the options of its loader."""

    name: str
    """Which data set it is."""
    options: tuple[tuple[str, Scalar], ...] = ()
    """Of a loader of one's own; one of them is set by its name: data.NAME."""
    path: Path | None = None
    """Where it is; says nothing about what it is."""
    content: str | None = None
    """Of a folder of images what is in it, by names and sizes; a run writes it down and refuses another content."""
    limit: Annotated[int, Field(strict=True, ge=2)] | None = None
    """At most so many images for training and validation together, and at most so many for testing."""
    validation: Count | None = None
    """Images held out of the training images; by default a tenth, at most 50,000."""

    @classmethod
    def known_options(cls, name: str) -> Mapping[str, Any]:
        """Of a loader."""
        return DATASETS.find(name).options

    @field_validator("path")
    @classmethod
    def _from_anywhere(cls, path: Path | None) -> Path | None:
        """A study means the same folder wherever it is read."""
        return None if path is None else Path(os.path.abspath(path.expanduser()))

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.content is not None and DATASETS.find(self.name).fingerprint is None:
            raise InputError(f"content = {self.content}: data set {self.name} is not known by the content of a folder")
        return self


# Fields of a `Training` by what they decide; all others decide only what its loop does with these.
OF_THE_NETWORK = ("network", "init", "resolution")
OF_THE_IMAGES = ("data", "resolution", "mean", "std")  # as they are, before they are augmented
OF_THE_BATCHES = (*OF_THE_IMAGES, "augment", "batch")
OF_THE_SPEED = ("network", "resolution", "data", "augment", "batch", "optimizer", "precision", "clip")  # of a step


class Training(Settings):
    """One training: network, data, optimiser, schedule.

    >>> Training(network="resnet8", data="digits", lr=0.1, epochs="3ep", batch=64).drops
    ()
    """

    network: NetworkChoice
    """By name, or with options: {name: resnet20, shortcut: pad}."""
    init: Init | None = None
    """How weights start; by default what the network was registered with."""

    data: DataChoice
    """By name, or with options: {name: cifar10, path: DIR, limit: 2000}."""
    augment: Augmentation = "none"
    """none, crop, crop_flip, or for files resized_crop_flip."""
    resolution: Count | None = None
    """Images are scaled to this size, and a network that has a resolution is built for it."""
    mean: tuple[Annotated[Number, Field(ge=0, le=1)], ...] | None = None
    """Of each channel, in [0, 1]; by default that of the training images."""
    std: tuple[Annotated[Number, Field(gt=0, le=1)], ...] | None = None
    """The same for standard deviations."""

    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """sgd, adam or adamw."""
    lr: Positive
    """The highest learning rate."""
    momentum: Share = 0.9
    """Of sgd."""
    nesterov: bool = False
    """Of sgd."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """Of adam and adamw."""
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0
    """Of adamw decoupled, of the others a part of the gradient."""

    epochs: Length
    """How long a training is: 80ep or 500it."""
    batch: Count
    """Images a step."""
    schedule: Literal["drops", "cosine"] = "drops"
    """What follows the warm-up: drops or cosine."""
    warmup: Length = Duration(0)
    """How long the learning rate rises: 5ep or 500it."""
    drops: tuple[Length, ...] = ()
    """When it falls by drop_factor: [55ep, 70ep]."""
    drop_factor: Annotated[Number, Field(gt=0, le=1)] = 0.1
    """What is left of the learning rate at each of the drops."""
    rates: RetrainingSchedule = "full"
    """`finetune`: the schedule's last rate throughout. `s_cyc`: between lr and lr_high, higher the more is pruned."""
    lr_high: Positive | None = None

    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: matrix products in bfloat16; weights, statistics and loss stay in float32."""
    clip: Positive | None = None
    """Largest norm of the gradient."""
    label_smoothing: Share = 0.0
    """How much of the target is spread over all classes."""
    early_stop: EarlyStop = "best_validation"
    """The epoch whose test accuracy is reported; the earliest on a tie."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.epochs.count < 1:
            raise InputError("epochs = 0: at least 1 is needed")
        for key, of in (("momentum", ("sgd",)), ("nesterov", ("sgd",)), ("betas", ("adam", "adamw"))):
            if self.optimizer not in of and getattr(self, key) != type(self).model_fields[key].default:
                raise InputError(f"{key} = {getattr(self, key)}: it belongs to {of[0]}, not to {self.optimizer}")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov = true needs a momentum above 0")
        if len(set(self.drops)) != len(self.drops):
            raise InputError(f"drops = {[str(drop) for drop in self.drops]}: one stands there twice")
        if self.schedule == "cosine" and self.drops:
            raise InputError("drops belong to schedule = drops, not to cosine")
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise InputError(f"mean = {self.mean} and std = {self.std}: both or none, one number a channel")
        if (self.rates == "s_cyc") != (self.lr_high is not None) or (self.lr_high or self.lr) < self.lr:
            raise InputError(f"lr_high = {self.lr_high}: s_cyc needs one of at least lr = {self.lr}, others none")
        if self.network.pretrained and (self.init or NETWORKS.find(self.network.name).init) != "native":
            raise InputError(f"pretrained weights and init = {self.init}: drawing new ones would discard them")
        return self

    def pinned(self) -> Training:
        """The training that says what is in its folder of images; any other is itself."""
        fingerprint = DATASETS.find(self.data.name).fingerprint
        if fingerprint is None or self.data.content is not None or self.data.path is None:
            return self
        return self.model_copy(update={"data": self.data.model_copy(update={"content": fingerprint(self.data.path)})})

    def build(self, num_classes: int, channels: int, seed: int = 0, cycle: int = 1) -> nn.Module:
        """The network for such data, with the weights that (seed, cycle) gives it."""
        options = self._options(channels, dict(self.network.options))
        return initial(self.network.name, num_classes, seed, cycle, self.init, **options)

    def skeleton(self, num_classes: int, channels: int) -> nn.Module:
        """The network for such data without weights, on the meta device."""
        with torch.device("meta"):
            return build(self.network.name, num_classes, **self._options(channels, self.network.without_weights))

    def outline(self) -> Outline:
        """Shape of the images that the network sees, and the number of classes."""
        (channels, height, width), classes = outline_of(self.data.name, self.data.path, **dict(self.data.options))
        return Outline((channels, self.resolution or height, self.resolution or width), classes)

    def _options(self, channels: int, own: Mapping[str, Any]) -> dict[str, Any]:
        """What the network is built with for images of so many channels: its own options, and what the data tell."""
        options = dict(own)
        offered = NETWORKS.find(self.network.name).options
        if "in_channels" in offered:
            options.setdefault("in_channels", channels)
        if self.resolution is not None and "resolution" in offered:
            options.setdefault("resolution", self.resolution)
        name, taken = self.network.name, options.get("in_channels", 3)
        if taken != channels:
            raise InputError(f"{name} takes images of {taken} channels, and {self.data.name} has {channels}")
        if self.resolution is not None and options.get("resolution", self.resolution) != self.resolution:
            raise InputError(f"resolution = {self.resolution}, and that of {name} is {options['resolution']}")
        return options

    def dataset(self) -> Dataset:
        """Its data."""
        dataset = load(self.data.name, self.data.path, **dict(self.data.options))
        if self.data.content not in (None, dataset.content):
            raise InputError(
                f"{self.data.path} is not what it was: names or sizes of its files have changed. "
                "Bring them back, or start another run in another folder"
            )
        return dataset

    def feed(
        self, seed: int, device: torch.device | str = "cpu", workers: int = 0, dataset: Dataset | None = None
    ) -> Feed:
        """Its data, split by the seed, on a device. The `dataset` may be given where it is at hand already."""
        dataset = dataset or self.dataset()
        own = Normalisation(self.mean, self.std) if self.mean is not None and self.std is not None else None
        batching = Batching(self.batch, self.augment, self.resolution, own)
        parts = split(dataset, seed, self.data.validation, self.data.limit)
        return feed_of(parts, seed, batching, usable_device(device), workers)
