"""One network's way through its epochs: what is recorded, kept and given back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.errors import InputError
from ..data import Feed, Part
from .member import Member, Score
from .result import Checkpoint, Epoch, Failure, Result, State
from .settings import Training


class Course:
    """A member between its epochs. `failure` ends it; `good` is the state after the last epoch that went well."""

    def __init__(self, training: Training, member: Member, at: Checkpoint, rewind_epoch: int | None) -> None:
        if rewind_epoch is not None and rewind_epoch < at.epoch and at.rewind is None:
            raise InputError(f"rewind_epoch = {rewind_epoch}: the checkpoint after {at.epoch} epochs does not hold it")
        self.training, self.member, self.of = training, member, at.of
        self.rewind_epoch = rewind_epoch
        self.rewind = None if rewind_epoch is None else at.rewind
        self.good: State = at.state
        self.epochs = list(at.epochs)
        self.epoch = at.epoch
        self.failure: Failure | None = None
        self._note_rewind()

    def finish(self, losses: Sequence[float], right: int, rates: Sequence[float], feed: Feed) -> bool:
        """Judges and records the epoch whose steps are done; False where it failed."""
        begin = self.epoch * feed.steps
        self.failure = self._failed_step(losses, rates, begin)
        if self.failure is not None:
            return False
        parts: tuple[Part, ...] = ("validation", "test")
        scores = {part: self.member.score(feed.evaluation(part)) for part in parts}
        self.failure = self._failed_evaluation(scores, begin + len(losses) - 1, rates[-1])
        if self.failure is not None:
            return False
        self.epochs.append(
            Epoch(
                epoch=self.epoch,
                step=begin + len(losses),
                lr=rates[-1],
                train_loss=math.fsum(losses) / len(losses),
                train_accuracy=right / (len(losses) * feed.batch),
                validation_loss=scores["validation"].loss,
                validation_accuracy=scores["validation"].accuracy,
                test_accuracy=scores["test"].accuracy,
            )
        )
        self.epoch += 1
        self.good = self.member.state()
        self._note_rewind()
        return True

    def checkpoint(self, seconds: float = 0.0) -> Checkpoint:
        """All that another training needs to go on from here with the same result."""
        optimizer = self.member.optimizer_state()
        return Checkpoint(self.epoch, self.good, optimizer, tuple(self.epochs), self.rewind, self.of, seconds)

    def result(self, seconds: float, images_per_second: float, unfinished: bool) -> Result:
        """What the training leaves behind; with a checkpoint if there is more to train."""
        kept = self.checkpoint(seconds) if unfinished and self.failure is None else None
        rule = self.training.early_stop
        return Result(self.good, tuple(self.epochs), rule, self.rewind, self.failure, kept, seconds, images_per_second)

    def _note_rewind(self) -> None:
        if self.epoch == self.rewind_epoch:
            self.rewind = self.good

    def _failed_step(self, losses: Sequence[float], rates: Sequence[float], begin: int) -> Failure | None:
        """The first step whose loss is no number, or the last one if it left weights that are none."""
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                return Failure(begin + index, self.epoch, rates[index], loss)
        if not self.member.is_finite():
            return Failure(begin + len(losses) - 1, self.epoch, rates[-1], math.nan)
        return None

    def _failed_evaluation(self, scores: dict[Part, Score], step: int, rate: float) -> Failure | None:
        loss = next((score.loss for score in scores.values() if not math.isfinite(score.loss)), None)
        return None if loss is None else Failure(step, self.epoch, rate, loss)
