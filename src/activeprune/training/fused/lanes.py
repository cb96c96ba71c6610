"""Residual networks for small images, many at once: the fused kernels as an engine of the training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...core.errors import InputError, listed
from ...core.masks import Masks
from ...data import Dataset, Images, Part, Shelf
from ...networks.cifar_resnet import CifarResNet
from ..case import Case
from ..engine import EVALUATED, Lane
from ..epoch_tables import Tables
from ..member import Score
from ..result import Snapshot, State
from ..settings import Training
from ..unavailable import EngineUnavailable
from .layout import MOMENTUM, Layout
from .memory import Recipe
from .resnets import FusedResNets, why_not


class Fused:
    """`count` networks in one launch a layer. What one computes depends neither on the others nor on their number."""

    def __init__(self, training: Training, shelf: Shelf, device: torch.device, count: int) -> None:
        model = fitting(training, shelf.dataset)
        if model is None:
            raise EngineUnavailable(f"the fused kernels are not made for {training.network.name}")
        self.training, self.shelf, self.device, self.model = training, shelf, device, model
        layout = Layout(model.depth, model.kind, len(shelf.dataset.classes))
        self.networks = FusedResNets(layout, _recipe(training), shelf.pixels, shelf.labels, count)
        self._used = 0
        self._copied: tuple[Tensor, Tensor, Tensor] | None = None

    def clear(self) -> None:
        """Frees all lanes for other trainings."""
        self._used = 0

    def lane(self, case: Case) -> FusedLane:
        """A network at the start of its training."""
        lane = FusedLane(self, self._used, case)
        self._used += 1
        return lane

    def run(self, lanes: Sequence[Lane], steps: int) -> None:
        """The next steps of these lanes; the others rest."""
        own = {lane.slot: lane for lane in lanes if isinstance(lane, FusedLane)}
        some = next(iter(own.values()))
        slots = [own.get(slot, some) for slot in range(self.networks.members)]  # who rests is shown anything
        order, shift, flip, rates = (torch.stack(parts) for parts in zip(*(s.table(steps) for s in slots), strict=True))
        active = torch.tensor([slot in own for slot in range(self.networks.members)])
        self._copied = None
        losses, right = self.networks.train(order, shift, flip, rates, active)
        outcome = Outcome(losses, right.sum(1), self.networks.finite())
        for lane in own.values():
            lane.note(outcome)

    def score(self, lanes: Sequence[Lane]) -> list[dict[Part, Score]]:
        """How well each does on its validation images and on the test images; waits for the device once."""
        own = {lane.slot: lane for lane in lanes if isinstance(lane, FusedLane)}
        if not own:
            return []
        sums = []
        for part in EVALUATED:
            rows = {slot: lane.tables.rows[part] for slot, lane in own.items()}
            anything = next(iter(rows.values()))
            shown = torch.stack([rows.get(slot, anything) for slot in range(self.networks.members)])
            sums.append(torch.stack(self.networks.evaluate(shown)))
        found = dict(zip(EVALUATED, torch.stack(sums).tolist(), strict=True))
        return [
            {part: lane.scored(part, losses[slot], right[slot]) for part, (losses, right) in found.items()}
            for slot, lane in own.items()
        ]

    def copied(self) -> tuple[Tensor, Tensor, Tensor]:
        """Parameters, running statistics and batch counts of all networks as they are now: one copy for all who ask."""
        if self._copied is None:
            networks = self.networks
            self._copied = networks.parameters.clone(), networks.running.clone(), networks.batches.clone()
        return self._copied

    def place(
        self, slot: int, state: Mapping[str, Tensor], masks: Masks | None, momentum: Mapping[str, Tensor] | None
    ) -> None:
        """Puts a network into a slot; what cannot be is said in its name."""
        self._copied = None
        network = self.training.network.name
        known = {name + MOMENTUM for name in self.networks.layout.parameters}
        if foreign := sorted({*(momentum or ())} - known):
            raise InputError(f"the optimiser's state is not one of this {network}: {listed(foreign)}")
        try:
            self.networks.place(slot, state, masks, momentum)
        except ValueError as error:
            raise InputError(f"{network}: {error}") from error


@dataclass(frozen=True)
class Outcome:
    """What came of some steps of all networks: `losses` [K, S], `right` answers [K], `finite` states [K]."""

    losses: Tensor
    right: Tensor
    finite: Tensor

    @cached_property
    def fetched(self) -> tuple[list[list[float]], list[int], list[bool]]:
        """The three, brought to the CPU when the first network asks for its own; waits for the device."""
        return self.losses.tolist(), self.right.tolist(), self.finite.tolist()


class FusedLane:
    """One of the networks: its slot, its images, and where it is in its epoch."""

    def __init__(self, engine: Fused, slot: int, case: Case) -> None:
        self.engine, self.networks, self.slot, self.masks = engine, engine.networks, slot, case.masks
        if case.masks is not None:
            case.masks.weights_of(engine.model)  # which refuses those of another network
        self.tables = Tables(case.feed, engine.device)
        self.networks.normalise(slot, *case.feed.factors)
        self.load(case.start)

    def prepare(self, epoch: int, rates: Tensor) -> None:
        """Puts an epoch's order, crops, flips and learning rates in place, behind the steps that are running."""
        self.tables.fill(epoch, rates)

    def begin(self) -> None:
        """Starts the epoch that was prepared."""
        self._at = 0
        self._outcomes: list[Outcome] = []

    def table(self, steps: int) -> tuple[Tensor, ...]:
        """Order, shifts, flips and rates of the next steps."""
        part, tables = slice(self._at, self._at + steps), self.tables
        return tables.order[part], tables.shift[part], tables.flip[part], tables.rates[part]

    def note(self, outcome: Outcome) -> None:
        """Keeps what came of some steps."""
        self._at += outcome.losses.shape[1]
        self._outcomes.append(outcome)

    def end(self) -> tuple[list[float], int]:
        """The loss of every step since `begin`, and the number of right answers; waits for the device."""
        fetched = [outcome.fetched for outcome in self._outcomes]
        losses = [loss for all_losses, _, _ in fetched for loss in all_losses[self.slot]]
        return losses, sum(right[self.slot] for _, right, _ in fetched)

    def scored(self, part: Part, loss: float, right: float) -> Score:
        """Sums over the images of a part as means."""
        return Score.of(loss, right, len(self.tables.rows[part]))

    def snapshot(self) -> Snapshot:
        """Weights, norm parameters and running statistics as they are now; asked later, it brings them to the CPU."""
        layout, slot, (rows, running, batches) = self.networks.layout, self.slot, self.engine.copied()
        return lambda: layout.state(rows[slot].cpu(), running[slot].cpu(), int(batches[slot]))

    def load(self, state: Mapping[str, Tensor], momentum: Mapping[str, Tensor] | None = None) -> None:
        """Puts a state in place; pruned weights become 0."""
        self._state = state
        self.engine.place(self.slot, state, self.masks, momentum)

    def optimizer_state(self) -> State:
        """Momentum by "parameter/momentum_buffer", on the CPU."""
        return self.networks.momentum(self.slot) if self.engine.training.momentum else {}

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts momentum in place."""
        self.load(self._state, state)

    def is_finite(self) -> bool:
        """Whether every number of the state was finite after the latest steps; waits for the device."""
        return self._outcomes[-1].fetched[2][self.slot]


def fitting(training: Training, dataset: Dataset) -> CifarResNet | None:
    """The network, if it is of the family that the fused kernels are made for; `EngineUnavailable` says what they
    cannot do of its training.
    """
    images, classes = dataset.train, len(dataset.classes)
    if not isinstance(images, Images):
        return None
    model = training.build(classes, images.shape[0])
    if not isinstance(model, CifarResNet):
        return None
    for setting, possible in (("precision", "bf16"), ("optimizer", "sgd"), ("clip", None), ("resolution", None)):
        if (found := getattr(training, setting)) != possible:
            raise EngineUnavailable(f"{setting} = {found}: the fused engine has {possible or 'none'}")
    layout, count = Layout(model.depth, model.kind, classes), len(images) + len(dataset.test)
    if reason := why_not(layout, _recipe(training), (count, *images.shape)):
        raise EngineUnavailable(reason)
    return model


def _recipe(training: Training) -> Recipe:
    return Recipe(
        batch=training.batch,
        momentum=training.momentum,
        nesterov=training.nesterov,
        weight_decay=training.weight_decay,
        label_smoothing=training.label_smoothing,
        augment=training.augment,  # type: ignore[arg-type]  # `why_not` looks at it
    )
