"""Draws in a thread: the same numbers, sooner."""

import threading

import pytest
import torch

from activeprune.data import ahead, draws
from activeprune.data.ahead import MOST_KEPT, Ahead


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """The epochs that were drawn, and whether that was here."""
    seen: list[tuple[int, bool]] = []

    def noting(seed: int, epoch: int, n: int):
        seen.append((epoch, threading.current_thread() is threading.main_thread()))
        return draws(seed, epoch, n)

    monkeypatch.setattr(ahead, "draws", noting)
    return seen


def test_what_was_expected_is_drawn_elsewhere_and_once_for_all_of_a_seed(drawn: list) -> None:
    own = Ahead(3, 20)
    own.expect(5)
    own.expect(5)
    first, second = own.take(5), own.take(5)
    assert drawn == [(5, False)]
    assert first is second
    for taken, wanted in zip(vars(first).values(), vars(draws(3, 5, 20)).values(), strict=True):
        assert torch.equal(taken, wanted)


def test_what_nobody_expected_is_drawn_here(drawn: list) -> None:
    assert torch.equal(Ahead(3, 20).take(1).order, draws(3, 1, 20).order)
    assert drawn == [(1, True)]


def test_an_epoch_is_dropped_when_the_next_is_taken_and_what_is_expected_stays(drawn: list) -> None:
    own = Ahead(3, 20)
    own.expect(0)  # of the next training
    for epoch in range(7, 30):
        own.expect(epoch)
        own.take(epoch)
    own.take(0)
    assert [*own._begun] == [0]
    assert len(drawn) == 24
    assert not any(here for _, here in drawn)


def test_what_is_expected_in_vain_does_not_pile_up(drawn: list) -> None:
    own = Ahead(3, 20)
    for epoch in range(3 * MOST_KEPT):
        own.expect(epoch)
    assert len(own._begun) == MOST_KEPT
    assert torch.equal(own.take(0).order, draws(3, 0, 20).order)
