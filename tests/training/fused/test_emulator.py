"""What the emulator of kernels sees, and that the fused kernels do not depend on whose turn it is."""

from __future__ import annotations

import ctypes

import pytest
import torch

from activeprune.training.fused.compiling import Source, fused_source
from tests.training.fused.emulator import Emulated, compiled
from tests.training.fused.makers import assert_same, draws_of, engine_of, everyone, model_of, rates_of, states_of

ORDERS = [(0, False), (1, True), (2 * 37 + 1, False), (2 * 11, True)]  # ascending, descending, begun in the middle


class Arguments(ctypes.Structure):
    _fields_ = (("values", ctypes.c_void_p), ("between", ctypes.c_int))


TEXT = b"""
#include "instructions.cuh"
struct Arguments { float* values; int between; };
extern "C" __device__ int reversed_shape[4] = {128, 512, 0, 0};
extern "C" __global__ void __launch_bounds__(128) reversed(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) float shared[];
  shared[threadIdx.x] = a.values[threadIdx.x];
  if (a.between) __syncthreads();
  a.values[threadIdx.x] = shared[127 - threadIdx.x];
}
extern "C" __device__ int copied_shape[4] = {128, 2048, 0, 0};
extern "C" __global__ void __launch_bounds__(128) copied(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) float shared[];
  copy_async(shared + 4 * threadIdx.x, a.values + threadIdx.x / 32 * 32);
  if (a.between) wait_for_copies();
  a.values[threadIdx.x] = shared[4 * threadIdx.x];
}
extern "C" __device__ int together_shape[4] = {32, 1024, 0, 0};
extern "C" __global__ void __launch_bounds__(32) together(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) u8 shared[];
  u32 r[4];
  if (a.between == 1) load_matrices(r, shared_address(shared) + 8);
  if (a.between == 2 && threadIdx.x < 16) __syncwarp();
}
"""


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory, emulated: Emulated) -> Emulated:
    return compiled(tmp_path_factory.mktemp("odd"), Source(TEXT, fused_source().headers))


def outcome(kernels: Emulated, name: str, between: int) -> list[float]:
    values = torch.arange(128.0)
    kernels[name].launch(1, 1, Arguments(values.data_ptr(), between))
    return values.tolist()


def test_a_thread_that_does_not_wait_for_its_block_reads_what_depends_on_the_order(odd: Emulated) -> None:
    found = {True: set(), False: set()}
    for waits, seen in found.items():
        for order in ORDERS:
            odd.schedule(*order)
            seen.add(str(outcome(odd, "reversed", waits)))
    assert found[True] == {str(torch.arange(128.0).flip(0).tolist())}
    assert len(found[False]) > 1


def test_a_copy_is_there_only_when_it_was_waited_for(odd: Emulated) -> None:
    odd.schedule(0, copies_at_once=False)
    assert outcome(odd, "copied", True) == (torch.arange(128) // 32 * 32).float().tolist()
    assert torch.tensor(outcome(odd, "copied", False)).isnan().all()  # shared memory has nothing in it
    odd.schedule(0, copies_at_once=True)
    assert outcome(odd, "copied", False) == outcome(odd, "copied", True)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [(1, "together: a matrix begins at an address that is no multiple of 16"),
     (2, "together: threads 0 to 31 of block 0, 0 part where they should act together")],
)  # fmt: skip
def test_mistakes_are_told(odd: Emulated, mistake: int, told: str) -> None:
    with pytest.raises(RuntimeError, match=told):
        outcome(odd, "together", mistake)
    assert outcome(odd, "together", 0) == torch.arange(128.0).tolist()  # and the next launch is as if nothing had been


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_no_result_depends_on_whose_turn_it_is(data, emulated: Emulated, shortcut: str) -> None:
    found = []
    for order in ORDERS:
        emulated.schedule(*order)
        engine = engine_of(data, [model_of(8, shortcut, seed) for seed in range(2)], batch=8)
        losses, _ = engine.train(*draws_of(engine, 1), rates_of(engine, 1, 0.1), everyone(engine))
        scores = torch.stack(engine.evaluate(torch.arange(40).view(2, 20)))
        found.append({"losses": losses, "scores": scores, **states_of(engine, 0), **states_of(engine, 1)})
    assert torch.isfinite(found[0]["losses"]).all()
    for other in found[1:]:
        assert_same(found[0], other)
