"""How work is cut: a network's sums are its own affair, who adds them up is everybody's."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activeprune.training.fused.compiling import Kernel
from activeprune.training.fused.units import BALANCED, RUN, UNITS, Cut


def kernel(name: str = "backward_16_join", pixels: int = 256, resident: int = 264) -> Kernel:
    return Kernel(name, ctypes.c_void_p(), 128, 0, pixels, resident, True)


@pytest.mark.parametrize("name", sorted(UNITS))
@given(images=st.integers(1, 64).map(lambda count: 8 * count))
def test_units_hold_every_tile_once(name: str, images: int) -> None:
    side = 512 // int(part) if (part := name.split("_")[1]).isdigit() else 32
    pixels = 128 if side < 32 else 256
    cut = Cut.of(kernel(name, pixels), images * side**2)
    assert cut.tiles * pixels == images * side**2
    assert (cut.units - 1) * cut.per_unit < cut.tiles <= cut.units * cut.per_unit


@given(networks=st.integers(1, 64), eights=st.integers(1, 64), resident=st.integers(1, 528))
def test_a_run_is_added_up_once_by_a_block_or_by_the_update(networks: int, eights: int, resident: int) -> None:
    chosen = kernel(resident=resident)
    cut = Cut.of(chosen, 8 * eights * 32**2)
    taken, left = cut.runs(chosen, networks)
    assert taken * left == (1 if cut.units % RUN else RUN)
    assert cut.units % taken == 0
    longest = max(dealt_out(cut.units // taken * networks, resident)) * taken
    assert longest <= BALANCED * max(dealt_out(cut.units * networks, resident))


def dealt_out(count: int, blocks: int) -> list[int]:
    """How many each block gets, as the kernels have it."""
    return [count * (block + 1) // blocks - count * block // blocks for block in range(blocks)]


def test_one_network_spreads_over_the_gpu_and_many_save_memory() -> None:
    chosen = kernel()  # two blocks on each of 132 processors
    cut = Cut.of(chosen, 128 * 32**2)
    assert cut == Cut(tiles=512, per_unit=4, units=128)
    assert cut.runs(chosen, 1) == (1, RUN)
    assert cut.runs(chosen, 32) == (RUN, 1)
