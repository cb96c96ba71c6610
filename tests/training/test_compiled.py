"""The compiled engine, as far as it goes without a GPU: torch's compiler compiles for a CPU, too."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

import activeprune as ap
from activeprune.core.randomness import torchs_own
from activeprune.training import compiled as module
from activeprune.training.compiled import WORTH_IT_FROM, Compiled, worth_compiling
from activeprune.training.loop import train_together
from activeprune.training.unavailable import EngineUnavailable
from tests.helpers import needs_a_compiler
from tests.training.makers import by_itself, half, same, small, training
from tests.training.test_captured import Here, case, cuda

__all__ = ["cuda"]  # a fixture

SHORT = training(augment="crop_flip", weight_decay=1e-3, epochs="10it", batch=10)


class HereCompiled(Here, Compiled):
    """On a CPU, as `Here` is; but what was recorded is done anew, since a tape cannot be compiled."""

    def _recorded(self, work):
        Compiled._recorded(self, work)
        return SimpleNamespace(replay=lambda: [work(lane) for lane in self._lanes])


@contextmanager
def _others_at_work() -> Iterator[set[object]]:
    """Two threads, one that traces and one that seeds and draws, and all that they get."""
    model, seen = small(), set[object]()
    over = threading.Event()

    def traces() -> None:
        while not over.is_set():
            seen.add(tuple(ap.trace(model, torch.zeros(2, 2, 6, 6)).reading("0.weight")))

    def draws() -> None:
        while not over.is_set():
            with torchs_own:
                torch.manual_seed(1)
                seen.add(float(torch.rand(9)[8]))

    with ThreadPoolExecutor(2) as pool:
        work = [pool.submit(traces), pool.submit(draws)]
        try:
            yield seen
        finally:
            over.set()
        for future in work:
            future.result()


def test_a_training_is_compiled_if_it_is_long_and_in_16_bits() -> None:
    def chosen(epochs: str, precision: str) -> bool:
        return worth_compiling(training(epochs=epochs, precision=precision), steps=4)

    assert chosen(f"{WORTH_IT_FROM}it", "bf16")
    assert not chosen(f"{WORTH_IT_FROM - 1}it", "bf16")
    assert not chosen(f"{WORTH_IT_FROM}it", "fp32")
    assert chosen(f"{WORTH_IT_FROM // 4}ep", "bf16")  # of four steps


@needs_a_compiler
@pytest.mark.slow
def test_a_compiled_network_is_trained_as_one_alone() -> None:
    """The compiler compiles: for batches of training and of evaluation, before the first step, once for all lanes and
    engines. Other threads trace and draw meanwhile.
    """
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    masks = half(SHORT)
    first = HereCompiled(SHORT)
    lane = first.lane(case(SHORT, 3))
    lane.prepare(0, torch.zeros(7))
    lane.begin()
    with _others_at_work() as seen:
        first.run([lane], 1)
        assert graphs["unique_graphs"] - before == 2
        results = train_together(SHORT, [case(SHORT, 3), case(SHORT, 4, masks=masks)], HereCompiled(SHORT))
    (again,) = train_together(SHORT, [case(SHORT, 3)], HereCompiled(SHORT))
    assert graphs["unique_graphs"] - before == 2
    assert len(seen) == 2
    assert same(again.state, results[0].state)
    for seed, own, result in zip((3, 4), (None, masks), results, strict=True):
        alone = by_itself(SHORT, seed, SHORT.build(2, 2, seed).state_dict(), own)
        assert list(result.state) == list(alone.state)
        for name, tensor in alone.state.items():
            torch.testing.assert_close(result.state[name], tensor, rtol=1e-4, atol=1e-5)
        assert [epoch.test_accuracy for epoch in result.epochs] == [epoch.test_accuracy for epoch in alone.epochs]


def test_a_network_that_cannot_be_compiled_is_left_to_another_engine() -> None:
    chosen = training(network="tests.training.makers:unreadable")
    with pytest.raises(EngineUnavailable, match=r"unreadable cannot be compiled \(.+\)$"):
        train_together(chosen, [case(chosen, 0)], HereCompiled(chosen))
    assert train_together(chosen, [case(chosen, 0)], Here(chosen))[0].failure is None


def test_a_lack_of_memory_is_no_fault_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("too much")

    monkeypatch.setattr(module, "compiled", lambda *_: too_much)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="too much"):
        train_together(SHORT, [case(SHORT, 0)], HereCompiled(SHORT))
