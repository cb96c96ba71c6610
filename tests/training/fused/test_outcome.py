"""What came of steps is brought over once for all networks, and each reads its own."""

import torch

from activeprune.training.fused.lanes import FusedLane, Outcome


def lane(slot: int) -> FusedLane:
    own = object.__new__(FusedLane)
    own.slot = slot
    own.begin()
    return own


def outcome(steps: int, start: float, finite: tuple[bool, bool]) -> Outcome:
    losses = start + torch.arange(2 * steps, dtype=torch.float32).view(2, steps)
    return Outcome(losses, torch.tensor([10, 20]) * steps, torch.tensor(finite))


def test_a_network_reads_its_own_losses_of_all_steps_in_order() -> None:
    one, other = lane(0), lane(1)
    for came in (outcome(3, 100.0, (True, True)), outcome(2, 200.0, (True, False))):
        one.note(came)
        other.note(came)
    assert one.end() == ([100.0, 101.0, 102.0, 200.0, 201.0], 50)
    assert other.end() == ([103.0, 104.0, 105.0, 202.0, 203.0], 100)
    assert one.is_finite()
    assert not other.is_finite()


def test_the_device_is_asked_once_for_all() -> None:
    came = outcome(3, 0.0, (True, True))
    assert came.fetched is came.fetched


def test_an_epoch_begins_with_no_steps_behind_it() -> None:
    own = lane(0)
    own.note(outcome(3, 0.0, (False, False)))
    own.begin()
    assert own.end() == ([], 0)
