"""The fused engine in the training loop: what it refuses and in which words, and how many networks it takes."""

import pytest
import torch

import activeprune as ap
from activeprune.data import Dataset, Images, Shelf
from activeprune.training import Case, choosing
from activeprune.training.fused import FusedResNets, Layout
from activeprune.training.fused.lanes import Fused, FusedLane
from activeprune.training.fused.memory import Networks
from tests.gpu.makers import half, start_of, training
from tests.training.makers import same
from tests.training.rounding import assert_as_near_to_float32_as_a_plain_loop

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


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_a_training_is_as_near_to_float32_as_a_plain_loop(device: torch.device) -> None:
    assert_as_near_to_float32_as_a_plain_loop(
        lambda chosen: Fused(chosen, Shelf(chosen.dataset(), device), device, count=2)
    )


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


SMALL = training(network="resnet8", precision="bf16", batch=8)


def few(count: int = 40) -> Dataset:
    """As many images to train with, and a few to test on."""
    pixels = torch.randint(0, 256, (count + 8, 3, 32, 32), dtype=torch.uint8)
    images = Images(pixels, torch.arange(count + 8) % 10)
    return Dataset("few", tuple("abcdefghij"), Images(images.pixels[:count], images.labels[:count]),
                   Images(images.pixels[count:], images.labels[count:]))  # fmt: skip


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_the_number_of_networks_is_measured_once(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "TRIAL_FUSED", choosing.Trial((1, 2, 4), steps=1, worth=0.0))
    told: list[str] = []
    engines, dataset = choosing.Engines(device, None, told.append), few()
    engines._fitting[SMALL] = [Fused]  # as on a GPU
    built = counted(monkeypatch)
    assert engines.room(SMALL, dataset, planned=3) == 3
    assert built == [1, 2, 3]
    assert engines.room(SMALL, dataset, planned=3) == 3
    assert built == [1, 2, 3]
    assert told == [
        "resnet8: a few steps are timed first",
        "resnet8: 3 networks at once chosen by timing",
    ]
    found = engines.paces(SMALL, dataset, planned=3)
    assert built == [1, 2, 3]
    assert [*found] == [1, 2, 3]
    assert all(pace.step > 0 and pace.evaluation > 0 for pace in found.values())


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_networks_that_memory_does_not_hold_are_not_taken(device: torch.device, monkeypatch) -> None:
    monkeypatch.setattr(choosing, "TRIAL_FUSED", choosing.Trial((1, 2, 4, 8), steps=1, worth=0.0))
    engines, dataset = choosing.Engines(device), few()
    engines._fitting[SMALL] = [Fused]
    built = counted(monkeypatch, most=2)
    assert engines.room(SMALL, dataset, planned=100) == 2
    assert built == [1, 2, 4]
    assert isinstance(engines.engine(SMALL, dataset, 2), Fused)  # the engine itself is not given up


def counted(monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> list[int]:
    """How many networks each engine is made for; more than `most` are too many for the memory."""
    built: list[int] = []
    make = FusedResNets.__init__

    def counting(engine: FusedResNets, *arguments: object) -> None:
        built.append(arguments[-1])
        if most is not None and built[-1] > most:
            raise torch.cuda.OutOfMemoryError("too many")
        make(engine, *arguments)

    monkeypatch.setattr(FusedResNets, "__init__", counting)
    return built
