"""What the fused engine refuses, and in which words, as far as it can be told without a GPU."""

import pytest
import torch

import activeprune as ap
from activeprune.training import Case
from activeprune.training.fused import FusedResNets, Layout
from activeprune.training.fused.lanes import Fused, FusedLane
from activeprune.training.fused.memory import Networks
from tests.gpu.makers import half, start_of, training
from tests.training.makers import same

CPU = torch.device("cpu")
CHOSEN = training(network="resnet8", precision="bf16")


def lane(start: dict, masks: ap.Masks | None = None) -> FusedLane:
    """One that checks as it does on a GPU, without kernels."""
    networks = object.__new__(FusedResNets)
    networks.layout, networks.device = Layout(8, "conv", 10), CPU
    networks.networks = own = Networks.zeros(1, networks.layout, 8, CPU)
    networks.parameters, networks.running, networks.batches = own.parameters, own.running, torch.zeros(1).long()
    engine = object.__new__(Fused)
    engine.training, engine.device, engine.networks, engine.model = CHOSEN, CPU, networks, CHOSEN.build(10, 3)
    return FusedLane(engine, 0, Case(CHOSEN.feed(0), start, masks))


def test_a_state_of_another_network_is_one_line() -> None:
    other = training(network="resnet20")
    with pytest.raises(ap.InputError, match="resnet8: the state is not one of this network: it differs in"):
        lane(start_of(other))


def test_masks_of_another_network_are_not_passed_over() -> None:
    with pytest.raises(ap.InputError, match="masks of another model"):
        lane(start_of(CHOSEN), half(training(network="resnet20")))
    odd = ap.Masks({"fc.weight": torch.ones(3, 5, dtype=torch.bool)})
    with pytest.raises(ap.InputError, match=r"'fc\.weight' is"):
        lane(start_of(CHOSEN), odd)


@pytest.mark.parametrize(
    ("momentum", "told"),
    [
        ({"fc.nothing/momentum_buffer": torch.ones(10)}, "'fc.nothing/momentum_buffer'"),
        ({"fc.bias/exp_avg": torch.ones(10)}, "'fc.bias/exp_avg'"),
        ({"fc.bias/momentum_buffer": torch.ones(3)}, r"resnet8: fc\.bias has the shape \(3,\): \(10,\) is needed"),
    ],
)
def test_momentum_of_another_network_is_not_passed_over(momentum: dict, told: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FusedResNets, "place", lambda *arguments: None)  # which would fill packed weights
        own = lane(start_of(CHOSEN))
    with pytest.raises(ap.InputError, match=told):
        own.load_optimizer_state(momentum)


def test_a_snapshot_stays_what_it_was_when_another_network_takes_the_place() -> None:
    first, second = start_of(CHOSEN), start_of(CHOSEN, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FusedResNets, "place", put)
        own = lane(first)
        taken = own.snapshot()
        assert own.engine.copied() is own.engine.copied()  # one copy for all who ask
        own.load(second)
        assert same(taken(), first)
        assert same(own.snapshot()(), second)


def put(networks: FusedResNets, slot: int, state: dict, masks: object, momentum: object) -> None:
    """Parameters and statistics, without the packed weights, which only a GPU needs."""
    networks.parameters[slot] = networks.layout.row(state)
    networks.running[slot] = networks.layout.running(state)
    networks.batches[slot] = 0
