"""What steps read: data, batches and networks, of which the last ones are kept, and results from the store."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache, lru_cache

import torch
from torch import Tensor, nn

from ...core.errors import InputError, listed
from ...core.masks import Masks
from ...data import Dataset, Feed
from ...machine import CPU, cores
from ...neurons.again import RepeatedCounter
from ...training import Checkpoint, Training
from ...training.settings import OF_THE_BATCHES
from ..plan.steps import Init, Prune, Train
from ..store import Store
from ..store.artifacts import CHECKPOINT, MASKS, STATE, checkpoint_of, masks_of, state_of, usable

DATASETS_KEPT = 4
FEEDS_KEPT = 64  # by rows: of two packs
NETWORKS_KEPT = 4


class Loaded:
    """For steps on one device. Where data are files, a process a core decodes them."""

    def __init__(self, store: Store, device: torch.device = CPU) -> None:
        self.store, self.device = store, device
        self._data: dict[str, Dataset] = {}
        self._loading = threading.Lock()  # one thread loads, and the others get the same
        self._feeds: dict[tuple[str, int], Feed] = {}
        self.feed_by_rows = lru_cache(FEEDS_KEPT)(self._feed_by_rows)
        self.network = lru_cache(NETWORKS_KEPT)(self._network)
        self._skeleton = cache(self._without_weights)

    def dataset(self, training: Training) -> Dataset:
        """The data of a training; the last ones are kept, for all seeds."""
        key = training.data.model_dump_json(include={"name", "path", "content"})
        with self._loading:
            found = self._data.pop(key, None) or training.dataset()
            self._data[key] = found  # as the last one
            if len(self._data) > DATASETS_KEPT:
                del self._data[next(iter(self._data))]
            return found

    def feed(self, training: Training, seed: int) -> Feed:
        """Batches of a run; the last one is kept, since steps of one seed follow each other."""
        key = (training.model_dump_json(include={*OF_THE_BATCHES}), seed)
        found = self._feeds.get(key)
        if found is None:
            found = training.feed(seed, self.device, cores(), self.dataset(training))
            self._feeds = {key: found}
        return found

    def model(self, training: Training, seed: int, cycle: int = 1) -> nn.Module:
        """A network with the weights that (seed, cycle) gives it."""
        data = self.dataset(training)
        return training.build(len(data.classes), data.channels, seed, cycle)

    def state(self, step: Init | Train) -> dict[str, Tensor]:
        """What a step left of a network; what a seed gives is drawn again."""
        if isinstance(step, Init):
            return self.model(step.training, step.seed, step.cycle).state_dict()
        content, skeleton = self.store.get(step.key, STATE), self._skeleton(step.training)
        with usable(step.key, STATE):
            state = state_of(content)
            _check(state, skeleton)
        return state

    def masks(self, step: Prune) -> Masks:
        """What a pruning left alive."""
        content, skeleton = self.store.get(step.key, MASKS), self._skeleton(step.training)
        with usable(step.key, MASKS):
            masks = masks_of(content)
            masks.weights_of(skeleton)
        return masks

    def checkpoint(self, step: Train) -> Checkpoint:
        """What a training left for another one to go on from."""
        content, skeleton = self.store.get(step.key, CHECKPOINT), self._skeleton(step.training)
        with usable(step.key, CHECKPOINT):
            checkpoint = checkpoint_of(content)
            _check(checkpoint.state, skeleton)
        return checkpoint

    def _feed_by_rows(self, training: Training, seed: int) -> Feed:
        """For an engine that has all images on its device, and asks which ones, in which order and how scaled."""
        return training.feed(seed, dataset=self.dataset(training))

    def _network(self, training: Training, recorded: bool) -> RepeatedCounter:
        """Counts dead neurons: one for threads that train (`recorded`), another for those that measure."""
        return RepeatedCounter(self.model(training, seed=0).to(self.device), recorded)

    def _without_weights(self, training: Training) -> nn.Module:
        """What states and masks must fit."""
        data = self.dataset(training)
        try:
            return training.skeleton(len(data.classes), data.channels)
        except Exception:  # somebody's own network that needs numbers while it is built
            return self.model(training, seed=0).to("meta")


def _check(state: Mapping[str, Tensor], network: nn.Module) -> None:
    """An error for the state of another network: names, shapes or types differ."""
    wanted, given = ({name: (t.shape, t.dtype) for name, t in s.items()} for s in (network.state_dict(), state))
    if wrong := sorted({name for name, _ in wanted.items() ^ given.items()}):
        raise InputError(f"names, shapes or types are not those of the network: {listed(wrong)} differ")
