"""One network's way through its epochs: what is recorded, kept and given back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from ..data import Part
from .case import Case
from .engine import Lane
from .member import Score
from .result import Checkpoint, Epoch, Failure, Result, Snapshot, State
from .schedules import learning_rates
from .settings import Training


class Course:
    """A case and its lane between its epochs, from the checkpoint `at` on. `failure` ends it.

    `first` is the epoch that its training began with.
    """

    def __init__(self, training: Training, case: Case, lane: Lane, at: Checkpoint, first: int = 0) -> None:
        self.training, self.case, self.feed, self.lane, self.of = training, case, case.feed, lane, at.of
        self.rates = learning_rates(training, case.feed.steps, 1.0 if case.masks is None else case.masks.density)
        self._good: Snapshot = lambda: at.state
        self.epochs = list(at.epochs)
        self.epoch = at.epoch
        self.seconds = at.seconds
        self.failure: Failure | None = None
        self.left = 0  # steps of the epoch that has begun
        self._prepared: int | None = None  # the epoch that its lane is ready for
        self._losses: Sequence[float] = ()
        self._right = 0
        self._kept: Checkpoint | None = None
        self.probed = [] if case.probe is None else list(at.probed)
        steps = case.feed.steps
        due = [] if case.probe is None else case.probe.due(first * steps, len(self.rates), steps)
        self._due = due[len(self.probed) :]
        self.look()

    @property
    def ahead(self) -> int:
        """Steps of the epoch until something is to be done: at its end, or where the probe looks."""
        return min([self.left, *(due - self._step for due in self._due[:1])])

    def begin(self) -> None:
        """Starts the next epoch."""
        self._prepare(self.epoch)
        self.left = len(self._rates_of(self.epoch))
        self.lane.begin()

    def prepare(self, last: int) -> None:
        """Makes ready for the epoch behind this one, if there is one before `last`, while the device computes."""
        if self.epoch + 1 < last:
            self._prepare(self.epoch + 1)

    def look(self) -> None:
        """Through the probe, where that is due. To be asked in the middle of an epoch; between two, it is."""
        if self.case.probe is not None and self._due and self._due[0] == self._step:
            now = self.lane.snapshot() if self.left else lambda: self.good
            self.probed.append(self.case.probe(self._due.pop(0), now))

    def judge(self) -> bool:
        """Whether the steps of the epoch went well; to be asked when none is left."""
        self._losses, self._right = self.lane.end()
        self.failure = self._failed_step()
        return self.failure is None

    def record(self, scores: Mapping[Part, Score]) -> bool:
        """Records the epoch; False where its evaluation shows that it failed."""
        rates = self._rates_of(self.epoch).tolist()
        step = self.epoch * self.feed.steps + len(rates)
        self.failure = self._failed_evaluation(scores, step - 1, rates[-1])
        if self.failure is not None:
            return False
        self.epochs.append(
            Epoch(
                epoch=self.epoch,
                step=step,
                lr=rates[-1],
                train_loss=math.fsum(self._losses) / len(self._losses),
                train_accuracy=self._right / (len(self._losses) * self.feed.batch),
                validation_loss=scores["validation"].loss,
                validation_accuracy=scores["validation"].accuracy,
                test_accuracy=scores["test"].accuracy,
            )
        )
        self.epoch += 1
        self._good = self.lane.snapshot()
        self.look()
        return True

    @property
    def good(self) -> State:
        """The state after the last epoch that went well."""
        state = self._good()
        self._good = lambda: state
        return state

    def checkpoint(self) -> Checkpoint:
        """All that another training needs to go on from here with the same result."""
        return Checkpoint(
            epoch=self.epoch,
            state=self.good,
            optimizer=self.lane.optimizer_state(),
            epochs=tuple(self.epochs),
            of=self.of,
            seconds=self.seconds,
            probed=tuple(self.probed),
        )

    def keep(self) -> None:
        """Keeps a checkpoint for the result: later, the lane may have gone on."""
        self._kept = self.checkpoint()

    def result(self, images_per_second: float) -> Result:
        """What the training leaves behind, with the checkpoint that was kept."""
        kept = None if self._kept is None else replace(self._kept, seconds=self.seconds)
        return Result(
            state=self.good,
            epochs=tuple(self.epochs),
            early_stop=self.training.early_stop,
            failure=self.failure,
            checkpoint=kept,
            probed=tuple(self.probed),
            seconds=self.seconds,
            images_per_second=images_per_second,
        )

    @property
    def _step(self) -> int:
        """Steps taken."""
        ended = min((self.epoch + bool(self.left)) * self.feed.steps, len(self.rates))
        return ended - self.left

    def _prepare(self, epoch: int) -> None:
        if self._prepared != epoch:
            self.lane.prepare(epoch, self._rates_of(epoch))
            self._prepared = epoch

    def _rates_of(self, epoch: int) -> Tensor:
        return self.rates[epoch * self.feed.steps : (epoch + 1) * self.feed.steps]

    def _failed_step(self) -> Failure | None:
        """The first step whose loss is no number, or the last one if it left weights that are none."""
        begin, rates = self.epoch * self.feed.steps, self._rates_of(self.epoch).tolist()
        for index, loss in enumerate(self._losses):
            if not math.isfinite(loss):
                return Failure(begin + index, self.epoch, rates[index], loss)
        if not self.lane.is_finite():
            return Failure(begin + len(rates) - 1, self.epoch, rates[-1], math.nan)
        return None

    def _failed_evaluation(self, scores: Mapping[Part, Score], step: int, rate: float) -> Failure | None:
        loss = next((score.loss for score in scores.values() if not math.isfinite(score.loss)), None)
        return None if loss is None else Failure(step, self.epoch, rate, loss)
