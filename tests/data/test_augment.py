"""Shifts and mirrors: the same as moving one pixel after the other, drawn the same way whatever they are for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from activeprune.core.randomness import generator
from activeprune.data import augmented, draws
from tests.data.makers import noise


def moved(image: np.ndarray, dy: int, dx: int, flip: bool, padding: int) -> np.ndarray:
    """One image, by its words: frame, cut, mirror."""
    framed = np.zeros((image.shape[0], image.shape[1] + 2 * padding, image.shape[2] + 2 * padding), np.uint8)
    framed[:, padding : padding + image.shape[1], padding : padding + image.shape[2]] = image
    cut = framed[:, dy : dy + image.shape[1], dx : dx + image.shape[2]]
    return cut[:, :, ::-1] if flip else cut


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 4),
    st.integers(1, 6),
    st.data(),
)
def test_augmented_is_frame_cut_mirror(shape: tuple[int, int, int], padding: int, n: int, data: st.DataObject) -> None:
    pixels = noise(n, 2, shape).pixels
    offset = st.integers(0, 2 * padding)
    shift = torch.tensor(data.draw(st.lists(st.tuples(offset, offset), min_size=n, max_size=n)))
    flip = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    found = augmented(pixels, shift, flip, padding)
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    for i in range(n):
        dy, dx = shift[i].tolist()
        assert np.array_equal(found[i], moved(pixels[i].numpy(), dy, dx, bool(flip[i]), padding))


def test_the_middle_of_the_frame_is_the_image_itself() -> None:
    pixels = noise(5, 2).pixels
    shift, flip = torch.full((5, 2), 4), torch.zeros(5, dtype=torch.bool)
    assert torch.equal(augmented(pixels, shift, flip), pixels)
    assert torch.equal(augmented(pixels, shift, ~flip), pixels.flip(3))


def test_an_epochs_draws_are_a_permutation_shifts_in_0_to_8_and_fair_coins() -> None:
    drawn = draws(0, 0, 9000)
    assert drawn.order.sort().values.tolist() == list(range(9000))
    assert (drawn.shift.shape, drawn.shift.dtype, drawn.flip.dtype) == ((9000, 2), torch.uint8, torch.bool)
    assert drawn.order.dtype == torch.int32
    for column in drawn.shift.T:
        assert all(abs(count - 1000) < 150 for count in column.bincount(minlength=9).tolist())  # 5 standard deviations
        assert column.max() == 8
    assert abs(int(drawn.flip.sum()) - 4500) < 240


def test_draws_come_in_a_fixed_order_from_the_seed_and_the_epoch() -> None:
    draw = generator(3, "data", 7)
    drawn = draws(3, 7, 50)
    assert torch.equal(drawn.order, torch.randperm(50, generator=draw))
    assert torch.equal(drawn.shift, torch.randint(0, 9, (50, 2), generator=draw))
    assert torch.equal(drawn.flip, torch.randint(0, 2, (50,), generator=draw) == 1)
    assert torch.equal(draws(3, 7, 50).to("cpu").shift, drawn.shift)
    assert not torch.equal(draws(3, 8, 50).order, drawn.order)
    assert not torch.equal(draws(4, 7, 50).order, drawn.order)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that this torch can use")
def test_a_cuda_graph_of_it_gives_what_the_cpu_gives() -> None:
    pixels, drawn = noise(128, 10).pixels, draws(0, 0, 128)
    there, on_device = pixels.cuda(), drawn.to("cuda")
    augmented(there, on_device.shift, on_device.flip)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = augmented(there, on_device.shift, on_device.flip)
    graph.replay()
    assert torch.equal(found.cpu(), augmented(pixels, drawn.shift, drawn.flip))
