"""Dead-neuron rates of any model: counted while it runs, attributed to weights by the weight graph."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from ..core.calling import Batch, Batches, eval_mode, inputs_of, one_less, size_of
from ..core.errors import InputError
from ..core.graph import WeightGraph, checked_graph, trace
from ..core.masks import Masks, checked_masks
from ..core.prunable import Patterns, unwrapped
from ..core.randomness import torchs_own
from .attribution import Attribution, Unfed
from .copying import as_it_was, copied, usual
from .counting import THRESHOLD, Counting
from .rates import DeadNeurons, Rates, Unattributed, rates_of, rates_without_identity, together
from .sparsity import Companions, Measures, measures_of_weights
from .watching import Tally, Watch, on_cpu

USUAL = Counting()


def dead_neurons(  # noqa: PLR0913  options by name
    model: nn.Module,
    masks: Masks | None,
    batches: Batches,
    graph: WeightGraph | None = None,
    *,
    threshold: float = THRESHOLD,
    share: float = 1.0,
    include: Patterns = None,
    exclude: Patterns = None,
    batch_statistics: bool = False,
    companions: bool = False,
) -> DeadNeurons:
    """Static, dynamic and total dead-neuron rates of a network with these masks (None: nothing is pruned).

    A neuron is dead for a sample if its activation function returns 0 (ReLU and its kin), or less than `threshold` in
    size (GELU, SiLU, Mish, Hardswish). At channel granularity a whole map must be dead, or the part `share` of it. Dead
    neurons are static if all the weights that feed them are pruned, through normalisations and sums; all others are
    dynamic. `batches` are tensors, pairs (input, target) or dicts of model arguments, samples along their first axis.

    The model is neither changed nor moved, and runs in eval mode, or with `batch_statistics` (batch-norm as in
    training). `graph` is its weight graph, traced with the first batch by default. `include` and `exclude` choose
    activations by shell patterns of their names, such as `exclude="*#2"`. `companions` adds sparsity measures of
    weights and activations, which takes longer.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU())
    >>> model[0].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> masks = Masks({"0.weight": torch.tensor([[False, False], [True, True]])})
    >>> found = dead_neurons(model, masks, [torch.tensor([[2.0, 1.0], [1.0, 2.0]])])
    >>> found.unit.static, found.unit.dynamic, found.unit.layers["1"].total
    (0.5, 0.25, 0.75)
    """
    counting = Counting(threshold, share, include, exclude, batch_statistics, companions)
    counter = DeadNeuronCounter(model, masks, graph, counting)
    if isinstance(batches, (Tensor, Mapping)):
        raise InputError("batches are several: pass a list, if only of one batch")
    for batch in batches:
        counter.add(batch)
    return counter.result()


class DeadNeuronCounter:
    """Counts the dead neurons of a network batch by batch: `add` them, then ask for the `result`.

    The network is copied when the counter is made, with its pruned weights at 0: a training may go on between two
    batches, and neither the model nor its buffers, modes and hooks are changed. Nothing waits for the device until the
    result, and memory does not grow with the number of samples. See `dead_neurons` for the arguments, its options
    being those of `counting`; `graph` serves every network of the same architecture, so that a counter in a loop costs
    no tracing.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> counter = DeadNeuronCounter(model, Masks.dense(model))
    >>> for _ in range(3):
    ...     counter.add(torch.randn(16, 4))
    >>> counter.result().samples
    48
    """

    def __init__(
        self,
        model: nn.Module,
        masks: Masks | None = None,
        graph: WeightGraph | None = None,
        counting: Counting = USUAL,
    ) -> None:
        weights = {} if masks is None else checked_masks(masks).weights_of(model)
        self._model = unwrapped(model)
        if isinstance(self._model, torch.jit.ScriptModule):
            raise InputError(
                "a model compiled by torch.jit hides its activations: measure the one that it was made from"
            )
        if graph is not None:
            checked_graph(graph, self._model)
        self.graph = graph
        """The weight graph; traced with the first batch. Of a model that cannot be traced it tells why."""
        self._masks: Mapping[str, Tensor] = masks or {}
        self._tensors, self._buffers = copied(self._model, weights, self._masks)
        self._counting = counting
        self._pruned = masks or Masks.dense(model) if counting.companions else None
        self._attribution = Attribution(graph)
        self._watch: Watch | None = None
        self.samples = 0

    def add(self, batch: Batch) -> None:
        """Runs one batch: a tensor, a pair (input, target) or a dict of model arguments, on the model's device."""
        size = size_of(batch)
        if not size:
            return
        watch = self._watching(batch)
        if self._buffers:
            torch._foreach_copy_([self._tensors[name] for name in self._buffers], list(self._buffers.values()))
        devices = {tensor.device for tensor in self._tensors.values() if tensor.device.type == "cuda"}
        with (
            torchs_own,
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.no_grad(),
            eval_mode(self._model, self._counting.batch_statistics),
            as_it_was(self._model),
        ):
            self._run(watch, batch, size)
        self.samples += size

    def _run(self, watch: Watch, batch: Batch, size: int) -> None:
        arguments, keywords = inputs_of(batch)
        with watch.one_pass(size):
            functional_call(self._model, self._tensors, arguments, keywords)

    def result(self) -> DeadNeurons:
        """The rates of all samples so far."""
        watch = self._watch
        if watch is None:
            raise InputError("dead neurons are counted on batches: pass batches=[input, ...]")
        if not watch.names:
            raise InputError(f"{type(self._model).__name__} calls no activation function whose output can be dead")
        self._counting.check_patterns(list(watch.names))
        tallies = on_cpu(watch.tallies)
        unfed = self._unfed(watch, tallies)
        units = {name: _unit_rates(tally, unfed[name]) for name, tally in tallies.items()}
        channels = {
            name: rates_of(tally.channels, unfed[name].channels, tally.samples)
            for name, tally in tallies.items()
            if tally.samples
        }
        return DeadNeurons(
            unit=together(units),
            channel=together(channels),
            samples=self.samples,
            unattributed=(*_unattributed(unfed), *self._unseen(watch)),
            companions=self._companions(tallies),
        )

    def _unfed(self, watch: Watch, tallies: Mapping[str, Tally]) -> dict[str, Unfed]:
        return self._attribution.unfed(tallies, watch.most_calls, self._masks, regular=len(watch.orders) == 1)

    def _watching(self, first: Batch) -> Watch:
        if self._watch is None:
            if self.graph is None:
                self._trace(first)
            known = self._attribution
            self._watch = Watch(self._model, known.axis, known.by_samples, self._counting)
        return self._watch

    def _trace(self, batch: Batch) -> None:
        """With a sample less, where there are several: the axis of the samples is the one that differs."""
        try:
            with torchs_own, torch.random.fork_rng([]), torch.inference_mode(False), torch.enable_grad():
                self.graph = trace(self._model, tree_map(usual, one_less(batch)))
        except InputError as error:
            self.graph = WeightGraph.untraceable(str(error))
        self._attribution = Attribution(self.graph)

    def _unseen(self, watch: Watch) -> Iterator[Unattributed]:
        """Activations that could not be counted."""
        for name in self._attribution.names:
            if name not in watch.names and self._counting.chosen(name):
                yield Unattributed(name, "not counted: it was traced, but did not show itself when the model ran")
        for path, module in self._model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                yield Unattributed(path, "not counted: torch.jit hides its activations")
            elif isinstance(module, (nn.RNN, nn.RNNCell)) and module.nonlinearity == "relu":
                yield Unattributed(path, "not counted: its activations are inside one operator")

    def _companions(self, tallies: Mapping[str, Tally]) -> Companions | None:
        if self._pruned is None:
            return None
        weights, layers = measures_of_weights({name: self._tensors[name] for name in self._pruned})
        activations = {}
        for name, tally in tallies.items():
            if tally.measures is not None:
                means = (tally.measures / tally.samples).tolist()
                if not all(map(math.isfinite, means)):
                    raise InputError(f"the outputs of {name!r} are not all finite: their sparsity cannot be measured")
                activations[name] = Measures(*means)
        return Companions(1 - self._pruned.alive / self._pruned.total, weights, layers, activations)


def _unattributed(unfed: Mapping[str, Unfed]) -> Iterator[Unattributed]:
    return (Unattributed(name, found.why) for name, found in unfed.items() if found.why)


def _unit_rates(tally: Tally, unfed: Unfed) -> Rates:
    if tally.units is None:
        return rates_without_identity(tally.neurons, tally.counted, tally.by_channel, unfed.units)
    return rates_of(tally.units, unfed.units, tally.samples)
