"""Dead neurons of one architecture again and again, each time with other weights: a pass is recorded, then replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from ..core.calling import Batch, Batches
from ..core.masks import Masks
from ..core.recording import recorded_by
from .attribution import Unfed
from .carrying import carried
from .dead import DeadNeuronCounter
from .rates import DeadNeurons
from .watching import Tally, Watch

Shape = tuple[torch.Size, torch.dtype]


class Removed:
    """Masks, or None where nothing is pruned, and what follows from them: worked out once for many looks."""

    def __init__(self, masks: Masks | None) -> None:
        self.masks = masks
        self.away = {name: ~mask for name, mask in (masks or {}).items()}
        self.unfed: dict[str, Unfed] | None = None


class RepeatedCounter(DeadNeuronCounter):
    """A counter that begins `again` with other weights, and answers each time as a new one would.

    On a GPU the second pass over batches of one shape is recorded as a CUDA graph, and later ones are replayed: a small
    network is hundreds of kernels that take longer to launch than to run. A model that cannot be recorded is run.
    `recorded`: it may be; nothing else in this thread must be running on the GPU then.
    """

    def __init__(self, model: nn.Module, recorded: bool = True) -> None:
        super().__init__(model)
        self._now = Removed(None)
        self._recorded = recorded  # wanted, and possible as far as is known
        self._seen: set[Shape] = set()
        self._records: dict[Shape, _Record] = {}

    def counted(self, state: Mapping[str, Tensor], pruned: Removed, batches: Batches) -> DeadNeurons:
        """Dead neurons of a state under masks."""
        self.again(state, pruned)
        for batch in batches:
            self.add(batch)
        return self.result()

    def again(self, state: Mapping[str, Tensor], pruned: Removed) -> None:
        """Forgets what was counted, and takes on other weights and buffers."""
        self._now, self._masks, self.samples = pruned, pruned.masks or {}, 0
        with torch.no_grad():
            _put(state, self._tensors)
            for name, away in pruned.away.items():
                self._tensors[name].masked_fill_(away, 0)
            _put({name: self._tensors[name] for name in self._buffers}, self._buffers)
        if self._watch is not None and _steady(self._watch):
            for tally in self._watch.tallies.values():
                tally.clear()
        else:
            self._watch = None
            self._records.clear()

    def _unfed(self, watch: Watch, tallies: Mapping[str, Tally]) -> dict[str, Unfed]:
        if not _steady(watch):
            return super()._unfed(watch, tallies)
        if self._now.unfed is None:
            self._now.unfed = super()._unfed(watch, tallies)
        return self._now.unfed

    def _run(self, watch: Watch, batch: Batch, size: int) -> None:
        if self._recorded and isinstance(batch, Tensor) and batch.device.type == "cuda":  # only on a GPU
            self._run_or_replay(watch, batch, size)
        else:
            super()._run(watch, batch, size)

    def _run_or_replay(self, watch: Watch, batch: Tensor, size: int) -> None:  # only on a GPU
        shape = (batch.shape, batch.dtype)
        if shape in self._seen and shape not in self._records and _steady(watch):
            self._record(watch, batch, size)
        if shape in self._records:
            self._records[shape].replay(batch)
        else:
            self._seen.add(shape)  # and libraries choose their kernels
            super()._run(watch, batch, size)

    def _record(self, watch: Watch, batch: Tensor, size: int) -> None:  # only on a GPU
        run = super()._run
        try:
            record = _Record(batch, watch.tallies.values(), lambda images: run(watch, images, size))
        except RuntimeError:  # it waits for the device, or needs more memory than there is
            self._recorded = False
        else:
            self._records[batch.shape, batch.dtype] = record


class _Record:  # only on a GPU
    """A pass over a batch as a CUDA graph, and how much it counts."""

    def __init__(self, batch: Tensor, tallies: Iterable[Tally], run: Callable[[Tensor], None]) -> None:
        self._batch, self._graph = batch.clone(), torch.cuda.CUDAGraph()
        self._counted: list[tuple[Tally, tuple[int, int, int]]] = []
        before = [(tally, (tally.samples, tally.neurons, tally.counted)) for tally in tallies]
        for tally, _ in before:
            tally.samples = tally.neurons = tally.counted = 0
        try:
            with recorded_by(self._graph, batch.device):
                run(self._batch)
        finally:  # nothing has been counted yet
            for tally, numbers in before:
                self._counted.append((tally, (tally.samples, tally.neurons, tally.counted)))
                tally.samples, tally.neurons, tally.counted = numbers

    def replay(self, batch: Tensor) -> None:
        """The pass over a batch of the same shape."""
        self._batch.copy_(batch)
        self._graph.replay()
        for tally, counted in self._counted:
            tally.more(*counted)


def _steady(watch: Watch) -> bool:
    """Whether every pass called the same activations with outputs of the same shape, as one that is replayed will."""
    return len(watch.orders) == 1 and all(tally.units is not None for tally in watch.tallies.values())


def _put(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    """Copies tensors into others by name, wherever those are."""
    names = [name for name in values if name in into]
    if names:
        device = into[names[0]].device
        torch._foreach_copy_([into[name] for name in names], carried([values[name] for name in names], device))
