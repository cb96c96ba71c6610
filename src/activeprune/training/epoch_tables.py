"""What the steps of an epoch read, on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import Feed, InMemory


class Tables:
    """An epoch of one network, by step: which rows of a `Shelf`, how each is shown, and the learning rates.

    `order` int64 [steps, batch], `shift` int64 [steps, batch, 2], `flip` bool [steps, batch], `rates` float32 [steps].
    They keep their places, so that a CUDA graph may read them. `rows` int64 are all images of a part, `steps` those of
    the epoch that is in place.
    """

    def __init__(self, feed: Feed, device: torch.device) -> None:
        shape = feed.steps, feed.batch
        self.order = torch.zeros(shape, dtype=torch.int64, device=device)
        self.shift = torch.zeros(*shape, 2, dtype=torch.int64, device=device)
        self.flip = torch.zeros(shape, dtype=torch.bool, device=device)
        self.rates = torch.zeros(feed.steps, device=device)
        self.steps = 0
        self.take_on(feed)

    def take_on(self, feed: Feed) -> None:
        """Begins with another training of the same shape."""
        assert isinstance(feed, InMemory)  # else there would be no shelf
        self.feed = feed
        self.rows: dict[str, Tensor] = {part: rows.to(self.order.device) for part, rows in feed.split.rows.items()}

    def fill(self, epoch: int, rates: Tensor) -> None:
        """Puts an epoch in place; of one that ends early the other rates are 0. The next one is drawn meanwhile.

        Nothing waits for the device, which does this when it has done what it was asked for before.
        """
        drawn, used = self.feed.draws(epoch), self.order.numel()
        self.steps = len(rates)
        self.feed.expect(epoch + 1)
        self.order.copy_(self.rows["train"][self._sent(drawn.order[:used])].view_as(self.order))
        self.shift.copy_(self._sent(drawn.shift[:used]).view_as(self.shift))
        self.flip.copy_(self._sent(drawn.flip[:used]).view_as(self.flip))
        self.rates.zero_()[: len(rates)].copy_(self._sent(rates))

    def _sent(self, values: Tensor) -> Tensor:
        """On the device; from memory that stays in place, or each copy would wait for all before it."""
        device = self.order.device
        return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values
