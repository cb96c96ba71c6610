"""Networks that are trained side by side: what the loop needs of them, and the plain way to do it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from ..core.randomness import seed_pythons, stable_seed, torchs_own
from ..data import Part
from ..data.feeds import Batch
from .case import Case
from .member import Member, Score
from .result import Snapshot, State
from .settings import Training

EVALUATED: tuple[Part, ...] = ("validation", "test")

Tell = Callable[[str], None]  # of what cannot be had, and of what takes long


class Lane(Protocol):
    """One network in training, and its way through an epoch."""

    def prepare(self, epoch: int, rates: Tensor) -> None:
        """Makes ready for an epoch, at these learning rates; the steps of the last one may still be running."""

    def begin(self) -> None:
        """Starts the epoch that was prepared."""

    def end(self) -> tuple[list[float], int]:
        """The loss of every step since `begin`, and the number of right answers; waits for the device."""

    def snapshot(self) -> Snapshot:
        """Weights, norm parameters and running statistics as they are now; asked later, it brings them to the CPU."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Puts a state in place; pruned weights become 0."""

    def optimizer_state(self) -> State:
        """Momentum and the like by "parameter/kind", on the CPU."""

    def load_optimizer_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts momentum and the like in place."""

    def is_finite(self) -> bool:
        """Whether every number of the state was finite after the latest steps; to be asked behind `end`."""


class Engine(Protocol):
    """Trains networks of one `Training`, each in a lane of its own; what one does never depends on the others."""

    device: torch.device

    def lane(self, case: Case) -> Lane:
        """A network at the start of its training."""

    def run(self, lanes: Sequence[Lane], steps: int) -> None:
        """The next steps of all these lanes."""

    def score(self, lanes: Sequence[Lane]) -> list[dict[Part, Score]]:
        """How well each does on its validation images and on the test images."""


class Eager(Engine):
    """One lane after the other, one operation after the other: works for every network on every device."""

    def __init__(self, training: Training, device: torch.device) -> None:
        self.training, self.device = training, device

    def lane(self, case: Case) -> EagerLane:
        """A network at the start of its training."""
        return EagerLane(self.training, case, self.device)

    def run(self, lanes: Sequence[Lane], steps: int) -> None:
        """The next steps of all these lanes."""
        for lane in lanes:
            assert isinstance(lane, EagerLane)
            lane.run(steps)

    def score(self, lanes: Sequence[Lane]) -> list[dict[Part, Score]]:
        """How well each does on its validation images and on the test images."""
        return [lane.scores() for lane in lanes if isinstance(lane, EagerLane)]


class EagerLane(Member):
    """A member and the batches that it sees."""

    def __init__(self, training: Training, case: Case, device: torch.device) -> None:
        self.feed = feed = case.feed
        super().__init__(training, training.build(len(feed.classes), feed.channels), case.start, case.masks, device)
        self.check_output(feed.evaluation("validation"), len(feed.classes))

    def prepare(self, epoch: int, rates: Tensor) -> None:
        """Notes which epoch comes next, and its learning rates."""
        self._next = epoch, rates

    def begin(self) -> None:
        """Starts the epoch that was prepared."""
        epoch, rates = self._next
        self._numbers = iter(range(epoch * self.feed.steps, epoch * self.feed.steps + len(rates)))
        self._batches: Iterator[Batch] = islice(self.feed.training(epoch), len(rates))
        self._first = epoch * self.feed.steps
        self._rates = rates.to(self.device, torch.float32)
        self._losses = torch.empty(len(rates), device=self.device)
        self._right = torch.zeros((), dtype=torch.int64, device=self.device)
        self.model.train()

    def run(self, steps: int) -> None:
        """What a network draws by itself, such as dropout, is drawn from (seed, "step", number of the step)."""
        for number in islice(self._numbers, steps):
            x, y = next(self._batches)
            self.rate.copy_(self._rates[number - self._first])
            seed = stable_seed(self.feed.seed, "step", number)
            with torchs_own:
                torch.manual_seed(seed)
                seed_pythons(seed)
                self._losses[number - self._first], correct = self.step(x, y)
            self._right += correct

    def end(self) -> tuple[list[float], int]:
        """The loss of every step since `begin`, and the number of right answers; waits for the device."""
        return self._losses.tolist(), int(self._right)

    def scores(self) -> dict[Part, Score]:
        """On the validation images and on the test images."""
        return {part: self.score(self.feed.evaluation(part)) for part in EVALUATED}
