"""What steps read: data, batches and networks, of which the last ones are kept, and results from the store."""

from __future__ import annotations

import threading
from functools import lru_cache

from torch import Tensor, nn

from ...core.masks import Masks
from ...data import Dataset, Feed
from ...training import Training
from ...training.probe import ProbedNetwork
from ...training.settings import OF_THE_BATCHES
from ..plan.steps import Init, Prune, Train
from ..store import Store
from ..store.artifacts import MASKS, STATE, masks_of, state_of

DATASETS_KEPT = 4
FEEDS_KEPT = 64  # by rows: of two packs
NETWORKS_KEPT = 4


class Loaded:
    """For steps on one device; `workers` are processes that decode files."""

    def __init__(self, store: Store, device: str = "cpu", workers: int = 0) -> None:
        self.store, self.device, self.workers = store, device, workers
        self._data: dict[str, Dataset] = {}
        self._loading = threading.Lock()  # one thread loads, and the others get the same
        self._feeds: dict[tuple[str, int], Feed] = {}
        self.feed_by_rows = lru_cache(FEEDS_KEPT)(self._feed_by_rows)
        self.network = lru_cache(NETWORKS_KEPT)(self._network)

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
            found = training.feed(seed, self.device, self.workers, self.dataset(training))
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
        return state_of(self.store.get(step.key, STATE))

    def masks(self, step: Prune) -> Masks:
        """What a pruning left alive."""
        return masks_of(self.store.get(step.key, MASKS))

    def _feed_by_rows(self, training: Training, seed: int) -> Feed:
        """For an engine that has all images on its device, and asks which ones, in which order and how scaled."""
        return training.feed(seed, dataset=self.dataset(training))

    def _network(self, training: Training, recorded: bool) -> ProbedNetwork:
        """To be looked at: one for threads that train (`recorded`), another for those that measure."""
        return ProbedNetwork(self.model(training, seed=0).to(self.device), recorded=recorded)
