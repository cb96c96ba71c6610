"""Many networks in one CUDA graph: each is trained as it would be alone."""

import pytest
import torch

import activeprune as ap
from activeprune.data import Shelf
from activeprune.training import Case, Checkpoint, Training
from activeprune.training.captured import Captured, EngineUnavailable
from activeprune.training.loop import same_kernels, train_together
from tests.gpu.makers import half, start_of, training
from tests.helpers import pruned_are_zero
from tests.training.makers import by_itself

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda")


def engine(chosen: Training) -> Captured:
    return Captured(chosen, Shelf(chosen.dataset(), GPU), GPU)


def case(chosen: Training, seed: int, **more) -> Case:
    return Case(chosen.feed(seed), start_of(chosen, seed), **more)


def difference(one: dict, two: dict) -> float:
    """The largest difference of a tensor, relative to its own size."""
    pairs = [(one[name].double(), two[name].double()) for name in one if one[name].is_floating_point()]
    return max(float((a - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs)


def counts(state: dict) -> set[int]:
    """Of the batches that norms have seen."""
    return {int(tensor) for name, tensor in state.items() if name.endswith("num_batches_tracked")}


@pytest.mark.parametrize(
    "changes",
    [{}, {"nesterov": True}, {"momentum": 0.0}, {"optimizer": "adam", "lr": 1e-3}, {"optimizer": "adamw", "lr": 1e-3},
     {"clip": 0.5, "label_smoothing": 0.1}, {"augment": "none"}, {"augment": "crop"},
     *({"network": network} for network in ("vgg19", "densenet40", "mobilenetv2"))],
    ids=str,
)  # fmt: skip
def test_the_first_twenty_steps_are_those_of_one_network_alone(changes: dict) -> None:
    """fp32, deterministic algorithms, no TF32."""
    chosen = training(epochs="20it", **{"lr": 1e-2, **changes})
    masks = half(chosen)
    results = train_together(chosen, [case(chosen, 0), case(chosen, 1, masks=masks), case(chosen, 2)], engine(chosen))
    alone = [by_itself(chosen, s, start_of(chosen, s), masks if s == 1 else None, device="cuda") for s in range(3)]
    for packed, single in zip(results, alone, strict=True):
        assert difference(packed.state, single.state) < 1e-5
        assert counts(packed.state) == counts(single.state) == {20}
        assert packed.epochs[0].train_loss == pytest.approx(single.epochs[0].train_loss, rel=1e-5)
        assert packed.best.test_accuracy == pytest.approx(single.best.test_accuracy, abs=0.011)
    model = chosen.build(10, 3)
    model.load_state_dict(results[1].state)
    assert pruned_are_zero(model, masks)


@pytest.mark.parametrize("network", ["vgg19", "densenet40", "mobilenetv2", "resnet20"])
def test_networks_of_the_paper_in_bf16(network: str) -> None:
    chosen = training(network=network, precision="bf16", epochs="8it", batch=64, lr=0.01)
    masks = half(chosen)
    one, two, three = train_together(
        chosen, [case(chosen, 0), case(chosen, 1, masks=masks), case(chosen, 0)], engine(chosen)
    )
    assert all(result.failure is None for result in (one, two, three))
    assert difference(one.state, three.state) < 1e-6
    model = chosen.build(10, 3)
    model.load_state_dict(two.state)
    assert pruned_are_zero(model, masks)


@pytest.mark.parametrize("network", ["resnet50", "vit_b16"])
def test_large_networks_alone(network: str) -> None:
    """On small images."""
    chosen = training(network=network, precision="bf16", epochs="8it", batch=64, lr=0.01, resolution=64)
    masks = half(chosen)
    (result,) = train_together(chosen, [case(chosen, 0, masks=masks)], engine(chosen))
    assert result.failure is None
    model, start = chosen.build(10, 3), start_of(chosen)
    model.load_state_dict(result.state)
    assert pruned_are_zero(model, masks)
    weights = model.state_dict()
    assert not any(torch.equal(weights[name], start[name] * mask) for name, mask in masks.items())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", ["vgg19", "densenet40", "mobilenetv2", "resnet20"])
def test_evaluations_are_recorded_and_give_what_launched_ones_do(network: str, precision: str) -> None:
    chosen = training(network=network, precision=precision, epochs="2ep", batch=64, lr=0.01)
    shared = engine(chosen)
    train_together(chosen, [case(chosen, 0), case(chosen, 1, masks=half(chosen))], shared)
    graph = shared._evaluation_graph
    assert graph is not None
    with same_kernels():
        assert torch.equal(shared._replayed(graph, shared._lanes), shared._launched(shared._lanes))


def test_the_next_trainings_use_the_same_graphs() -> None:
    chosen = training(epochs="12it")
    shared = engine(chosen)
    first = train_together(chosen, [case(chosen, 0, masks=half(chosen)), case(chosen, 1)], shared)
    graphs = shared._step_graph, shared._evaluation_graph
    assert None not in graphs
    shared.clear()
    second = train_together(chosen, [case(chosen, 2, masks=half(chosen, 5)), case(chosen, 0)], shared)
    assert (shared._step_graph, shared._evaluation_graph) == graphs
    fresh = train_together(chosen, [case(chosen, 2, masks=half(chosen, 5)), case(chosen, 0)], engine(chosen))
    for a, b in zip(second, fresh, strict=True):
        assert difference(a.state, b.state) < 1e-5
        assert a.epochs[-1].validation_loss == pytest.approx(b.epochs[-1].validation_loss, rel=1e-4)
    assert difference(first[0].state, second[0].state) > 1e-3


def test_a_checkpoint_goes_on_in_a_pack_of_another_size() -> None:
    chosen = training(epochs="3ep")
    kept: list[Checkpoint] = []
    tell = lambda _, checkpoint: kept.append(checkpoint())  # noqa: E731
    whole, other = train_together(chosen, [case(chosen, 0, after_epoch=tell), case(chosen, 1)], engine(chosen))
    (resumed,) = train_together(chosen, [case(chosen, 0, resume=kept[0])], engine(chosen))
    assert difference(resumed.state, whole.state) < 1e-4
    assert [e.epoch for e in resumed.epochs] == [0, 1, 2]
    both = train_together(chosen, [case(chosen, 0, resume=kept[1]), case(chosen, 1)], engine(chosen))
    assert difference(both[0].state, whole.state) < 1e-4
    assert difference(both[1].state, other.state) < 1e-4


def test_one_that_fails_leaves_and_the_others_go_on() -> None:
    chosen = training(epochs="2ep")
    wild = Case(chosen.feed(1), {name: tensor * 1e30 for name, tensor in start_of(chosen, 1).items()})
    good, bad = train_together(chosen, [case(chosen, 0), wild], engine(chosen))
    assert bad.failure is not None
    (alone,) = train_together(chosen, [case(chosen, 0)], engine(chosen))
    assert difference(good.state, alone.state) < 1e-5


def test_memory_that_runs_out_in_a_capture_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing behind: fewer lanes go on as if nothing had been."""
    chosen = training(epochs="4it")
    shared = engine(chosen)
    own = [shared.lane(case(chosen, seed)) for seed in range(3)]
    for lane in own:
        lane.prepare(0, torch.full((4,), 1e-3))
        lane.begin()
    one_step = own[1].one_step

    def too_much() -> None:
        one_step()
        if torch.cuda.is_current_stream_capturing():
            torch.empty(1 << 50, dtype=torch.uint8, device=GPU)

    monkeypatch.setattr(own[1], "one_step", too_much)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        shared.run(own, 1)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    monkeypatch.undo()
    del shared, own, lane
    results = train_together(chosen, [case(chosen, 0), case(chosen, 1)], engine(chosen))
    alone = by_itself(chosen, 0, start_of(chosen, 0), device="cuda")
    assert difference(results[0].state, alone.state) < 1e-5


def test_a_network_that_waits_for_the_device_is_left_to_the_plain_loop() -> None:
    chosen = training(network={"name": "tests.gpu.makers:waiting"}, epochs="2it")
    with pytest.raises(EngineUnavailable, match="cannot be recorded"):
        train_together(chosen, [case(chosen, 0), case(chosen, 1)], engine(chosen))
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert by_itself(chosen, 0, start_of(chosen, 0), device="cuda").failure is None


def test_a_network_that_waits_in_its_evaluation_alone_is_captured_and_its_evaluation_launched() -> None:
    chosen = training(network={"name": "tests.gpu.makers:waiting_in_evaluation"}, epochs="2ep", lr=1e-3)
    told: list[str] = []
    shared = Captured(chosen, Shelf(chosen.dataset(), GPU), GPU, told.append)
    (result,) = train_together(chosen, [case(chosen, 0)], shared)
    assert ["cannot be recorded" in line for line in told] == [True]
    alone = by_itself(chosen, 0, start_of(chosen, 0), device="cuda")
    assert difference(result.state, alone.state) < 1e-5
    assert result.epochs[-1].validation_loss == pytest.approx(alone.epochs[-1].validation_loss, rel=1e-4)


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(EngineUnavailable, match="needs a GPU, not cpu"):
        Captured(training(), Shelf(training().dataset(), torch.device("cpu")), torch.device("cpu"))
    dropout = training(network={"name": "tests.gpu.makers:dropping"}, epochs="2it")
    with pytest.raises(EngineUnavailable, match="draws random numbers in training"):
        train_together(dropout, [case(dropout, 0)], engine(dropout))
    chosen = training(epochs="2it")
    odd = ap.Masks({"bn.weight": torch.ones(16, dtype=torch.bool)})
    with pytest.raises(EngineUnavailable, match=r"masks of bn\.weight"):
        train_together(chosen, [case(chosen, 0, masks=odd)], engine(chosen))
