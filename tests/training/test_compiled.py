"""The compiled engine, as far as it goes without a GPU: torch's compiler compiles for a CPU, too."""

import pytest
import torch

from activeprune.training import captured
from activeprune.training import compiled as module
from activeprune.training.compiled import WORTH_IT_FROM, Compiled, worth_compiling
from activeprune.training.loop import train_together
from activeprune.training.unavailable import EngineUnavailable
from tests.training.makers import by_itself, half, training
from tests.training.test_captured import Here, case, cuda

__all__ = ["cuda"]  # a fixture

SHORT = training(augment="crop_flip", weight_decay=1e-3, epochs="10it")


class HereCompiled(Here, Compiled):
    """On a CPU, as `Here` is."""


def test_a_training_is_compiled_if_it_is_long_and_in_16_bits() -> None:
    def chosen(epochs: str, precision: str) -> bool:
        return worth_compiling(training(epochs=epochs, precision=precision), training().dataset())

    assert chosen(f"{WORTH_IT_FROM}it", "bf16")
    assert not chosen(f"{WORTH_IT_FROM - 1}it", "bf16")
    assert not chosen(f"{WORTH_IT_FROM}it", "fp32")
    assert chosen(f"{WORTH_IT_FROM // 4}ep", "bf16")  # of four steps


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own doing
def test_a_compiled_network_is_trained_as_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler compiles: for batches of training and whole ones of evaluation, once for all lanes."""
    for one in (captured, module):
        monkeypatch.setattr(one, "EVALUATION_BATCH", 10)
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    masks = half(SHORT)
    engine = HereCompiled(SHORT)
    results = train_together(SHORT, [case(SHORT, 3), case(SHORT, 4, masks=masks)], engine)
    assert graphs["unique_graphs"] - before == 2
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
