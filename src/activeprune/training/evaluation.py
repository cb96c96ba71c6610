"""The images that a network is evaluated on, in batches that are all of one size, and what comes of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, fsum

import torch
from torch import Tensor

from ..data import Part, Shelf
from .engine import EVALUATED
from .member import Score

AT_ONCE = 500  # images at most: enough for a GPU, and CIFAR's parts are multiples of it
NO_LABEL = -100  # which torch's cross-entropy passes over


class Evaluation:
    """Validation and test images of one network: `rows` of a `Shelf` and `labels`, int64 [batches, images].

    A batch is of one part. What its images do not fill is filled up with others of that part, which have no label, so
    that they count neither as a loss nor as a right answer. `sums` float64 [batches, 2] are a loss and right answers
    added up, `at` int64 [1] is the batch that comes next. All keep their places, so that a CUDA graph may use them.
    """

    def __init__(self, sizes: Mapping[Part, int], device: torch.device) -> None:
        most = max(sizes[part] for part in EVALUATED)
        images = ceil(most / ceil(most / AT_ONCE))
        self.sizes = sizes
        self.parts = [(part, ceil(sizes[part] / images)) for part in EVALUATED]
        self.count = sum(batches for _, batches in self.parts)
        self.rows, self.labels = (torch.zeros(self.count, images, dtype=torch.int64, device=device) for _ in range(2))
        self.sums = torch.zeros(self.count, 2, dtype=torch.float64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)

    def take_on(self, rows: Mapping[str, Tensor], shelf: Shelf) -> None:
        """Puts the images of another network in place, as many of each part as before."""
        assert all(len(rows[part]) == self.sizes[part] for part, _ in self.parts)
        images = self.rows.shape[1]
        whole, labels = [], []
        for part, batches in self.parts:
            places = torch.arange(batches * images, device=self.rows.device)
            own = rows[part][places % self.sizes[part]]
            whole.append(own)
            labels.append(shelf.labels[own].masked_fill(places >= self.sizes[part], NO_LABEL))
        self.rows.copy_(torch.cat(whole).view_as(self.rows))
        self.labels.copy_(torch.cat(labels).view_as(self.labels))

    def begin(self) -> None:
        """From the first batch on; what came of earlier ones is forgotten."""
        self.at.zero_()
        self.sums.fill_(torch.nan)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Rows and labels of the next one."""
        return self.rows[self.at][0], self.labels[self.at][0]

    def note(self, sums: Tensor) -> None:
        """Keeps what came of it, and moves on; behind the last batch it stays there."""
        self.sums.index_copy_(0, self.at, sums.to(self.sums.dtype).view(1, 2))
        self.at.add_(1).clamp_(max=self.count - 1)

    def scores(self, sums: list[list[float]]) -> dict[Part, Score]:
        """Means over each part, of `sums` that were brought over."""
        scores, first = {}, 0
        for part, batches in self.parts:
            losses, right = zip(*sums[first : first + batches], strict=True)
            scores[part] = Score.of(fsum(losses), fsum(right), self.sizes[part])
            first += batches
        return scores
