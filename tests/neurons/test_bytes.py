"""Sums of many bytes at once against plain sums."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from activeprune.neurons.bytes import over_maps, over_samples, summed

SIDES = st.sampled_from([1, 2, 3, 7, 8, 16, 49, 64, 255, 256, 300])


@given(st.sampled_from([1, 2, 5]), SIDES, SIDES, st.sampled_from([0.0, 0.5, 1.0]))
def test_it_is_the_sum_over_the_middle_axis(a: int, k: int, b: int, share: float) -> None:
    ones = (torch.rand(a, k, b) < share).view(torch.uint8)
    assert torch.equal(summed(ones), ones.int().sum(1, dtype=torch.int32))


def test_more_rows_and_longer_maps_than_a_byte_can_count() -> None:
    ones = torch.ones(3, 5, 112, 112, dtype=torch.uint8)
    assert torch.equal(over_maps(ones, 1), torch.full((3, 5), 112 * 112, dtype=torch.int32))
    assert torch.equal(over_samples(torch.ones(1000, 4, 2, dtype=torch.uint8)), torch.full((4, 2), 1000).int())


@given(st.lists(st.sampled_from([1, 2, 3, 8, 16]), min_size=1, max_size=4), st.data())
def test_channels_may_be_at_any_axis(shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(1, len(shape)))
    ones = (torch.rand(3, *shape) < 0.5).view(torch.uint8)
    others = [a for a in range(1, len(shape) + 1) if a != axis]
    assert torch.equal(over_maps(ones, axis), ones.int().sum(others) if others else ones.int())
    assert torch.equal(over_samples(ones), ones.int().sum(0))
