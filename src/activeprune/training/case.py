"""One of several trainings of one shape: what distinguishes it, and which of its epochs are meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from ..core.errors import InputError, whole
from ..core.masks import Masks
from ..data import Feed
from .probe import Probe
from .result import Checkpoint, Epoch

AfterEpoch = Callable[[Epoch, Callable[[], Checkpoint]], None]


@dataclass(frozen=True, eq=False)
class Case:
    """A network in training: the data of its seed, where it starts and what is pruned.

    `after_epoch(record, checkpoint)` is called between its epochs; what `checkpoint()` returns there lets another case
    `resume` with no effect on the result. What a `probe` sees on the way is in the result.
    """

    feed: Feed
    start: Mapping[str, Tensor]
    masks: Masks | None = None
    resume: Checkpoint | None = None
    after_epoch: AfterEpoch | None = None
    probe: Probe | None = None

    def expect(self, first: int) -> None:
        """Begins to draw for its first epoch: `first`, or the one that its checkpoint stands before."""
        self.feed.expect(first if self.resume is None else self.resume.epoch)


@dataclass(frozen=True)
class Span:
    """The epochs from `first` on, up to `last`; None is the end of the training.

    A training that starts at the state of a later epoch takes schedule and data from there on.
    """

    first: int = 0
    last: int | None = None

    def within(self, end: int) -> tuple[int, int]:
        """Both bounds in a training of `end` epochs.

        >>> Span(2).within(80)
        (2, 80)
        """
        first, last = whole("first", self.first, 0), end if self.last is None else whole("last", self.last, 1)
        if not first < last <= end:
            raise InputError(f"epochs {first} to {last}: this training has epochs 0 to {end}")
        return first, last


WHOLE = Span()
