"""Many compiled networks in one CUDA graph: the same bits every time, and those of other engines but for rounding."""

from pathlib import Path

import pytest
import torch
from torch import nn

from activeprune.data import Shelf
from activeprune.experiment.work.observer import Observer
from activeprune.training import compiled as module
from activeprune.training.captured import Captured
from activeprune.training.compiled import Compiled
from activeprune.training.loop import same_kernels, train_together
from activeprune.training.narrow import Padded, Spread
from tests.experiment.makers import contents
from tests.gpu.makers import half, training
from tests.gpu.test_captured import GPU, case, counts, difference
from tests.gpu.test_packed import run_of
from tests.helpers import pruned_are_zero

pytestmark = pytest.mark.gpu

NARROW = {"name": "tests.gpu.makers:narrow"}
SHORT = training(network=NARROW, precision="bf16", epochs="12it", batch=64, lr=0.01)


def engine(kind: type = Compiled) -> Captured:
    return kind(SHORT, Shelf(SHORT.dataset(), GPU), GPU)


def test_a_network_has_the_same_bits_alone_among_others_and_again() -> None:
    masks = half(SHORT)
    among = engine()
    first = train_together(SHORT, [case(SHORT, 0), case(SHORT, 1, masks=masks), case(SHORT, 2)], among)
    among.clear()
    again = train_together(SHORT, [case(SHORT, 2), case(SHORT, 0), case(SHORT, 1, masks=masks)], among)
    (alone,) = train_together(SHORT, [case(SHORT, 1, masks=masks)], engine())
    for one, other in ((first[0], again[1]), (first[1], again[2]), (first[2], again[0]), (first[1], alone)):
        assert all(torch.equal(tensor, other.state[name]) for name, tensor in one.state.items())
        assert one.epochs == other.epochs
    model = SHORT.build(10, 3)
    model.load_state_dict(alone.state)
    assert pruned_are_zero(model, masks)


def test_it_follows_the_captured_engine() -> None:
    """Weights move the same way, as far as 16 bits allow; batches are counted alike, and states have the same names;
    evaluations are replayed, and give what launched ones do.
    """
    cases = [case(SHORT, seed) for seed in (0, 1)]
    fast = engine()
    results = [train_together(SHORT, cases, one) for one in (fast, engine(Captured))]
    for of, packed, plain in zip(cases, *results, strict=True):
        weights = [name for name, tensor in of.start.items() if tensor.dim() > 1]
        moved = [{name: one.state[name] - of.start[name] for name in weights} for one in (packed, plain)]
        assert difference(*moved) < 0.2
        assert counts(packed.state) == counts(plain.state) == {12}
        assert list(packed.state) == list(plain.state)
        assert packed.epochs[0].train_loss == pytest.approx(plain.epochs[0].train_loss, rel=2e-3)
        assert packed.epochs[0].validation_loss == pytest.approx(plain.epochs[0].validation_loss, rel=2e-2)
    graph = fast._evaluation_graph
    assert graph is not None
    with same_kernels():
        assert torch.equal(fast._replayed(graph, fast._lanes), fast._launched(fast._lanes))
    assert [type(layer) for layer in fast._lanes[0].model if isinstance(layer, nn.Conv2d)] == [Spread, Padded]


def test_packs_of_any_size_leave_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_IT_FROM", 1)
    runs = [run_of(tmp_path / str(pack), network=NARROW, seeds=2, cycles=1) for pack in (1, 4)]
    for run, pack in zip(runs, (1, 4), strict=True):
        outcome = run.go(pack=pack)
        assert outcome.failed == outcome.blocked == ()
        assert {run.store.provenance(step.key)["engine"] for step in run.plan.trainings} == {"compiled"}
    assert contents(runs[0].store.root) == contents(runs[1].store.root)


@pytest.mark.parametrize("pack", [2, None])
def test_what_cannot_be_compiled_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: int | None) -> None:
    monkeypatch.setattr(module, "WORTH_IT_FROM", 1)
    run = run_of(tmp_path, network={"name": "tests.gpu.makers:unreadable"}, variants=["plain"], seeds=2, cycles=1)
    said: list[str] = []

    class Listening(Observer):
        def trouble(self, line: str) -> None:
            said.append(line)

    outcome = run.go(Listening(), pack=pack)
    assert outcome.failed == outcome.blocked == ()
    assert {run.store.provenance(step.key)["engine"] for step in run.plan.trainings} == {"captured"}
    assert sum("cannot be compiled" in line and "the slower way" in line for line in said) == 1
