"""Which engine is chosen for what, as far as it can be told without a GPU."""

import pytest
import torch

from activeprune.data import Dataset, Images
from activeprune.training import Training
from activeprune.training.captured import Captured
from activeprune.training.choosing import Engines, Trial, fastest
from activeprune.training.compiled import Compiled
from activeprune.training.engine import Eager
from activeprune.training.fused.lanes import Fused, fitting
from activeprune.training.unavailable import EngineUnavailable
from tests.gpu.makers import patches, training

CPU = torch.device("cpu")


def of_bf16(**changes) -> Training:
    return training(precision="bf16", **changes)


@pytest.mark.parametrize("network", ["resnet20", "resnet8", {"name": "resnet20", "shortcut": "pad"}])
def test_the_fused_kernels_are_for_residual_networks_of_small_images(network: object) -> None:
    assert fitting(of_bf16(network=network), patches()) is not None
    other = of_bf16(network=network, nesterov=True, label_smoothing=0.1, augment="none", batch=64)
    assert fitting(other, patches()) is not None


@pytest.mark.parametrize(
    "changes",
    [{"precision": "fp32"}, {"optimizer": "adam"}, {"clip": 1.0}, {"resolution": 32}, {"batch": 100},
     {"network": "vgg19"}, {"network": "mobilenetv2"}],
    ids=str,
)  # fmt: skip
def test_and_for_nothing_else(changes: dict) -> None:
    assert fitting(training(**{"precision": "bf16", **changes}), patches()) is None


def test_images_of_another_size_are_not_for_them() -> None:
    small = Images(torch.zeros(20, 3, 8, 8, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64))
    assert fitting(of_bf16(), Dataset("small", ("a",), small, small)) is None


def test_on_a_cpu_the_plain_loop_does_everything() -> None:
    told: list[str] = []
    for most, room in ((None, 1), (3, 3)):
        engines = Engines(CPU, most, told.append)
        assert engines.room(of_bf16(), patches(), 9) == room
        assert isinstance(engines.engine(of_bf16(), patches(), 2), Eager)
    assert told == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("kind", [Fused, Compiled, Captured])
def test_what_needs_a_gpu_says_so(kind: type) -> None:
    from activeprune.data import Shelf

    shelf = Shelf(patches(), CPU)
    arguments = (of_bf16(), shelf, CPU, 2) if kind is Fused else (of_bf16(), shelf, CPU)
    with pytest.raises(EngineUnavailable, match=r"needs? a"):
        kind(*arguments)


def test_an_engine_that_cannot_be_had_leaves_a_line_and_the_slower_one() -> None:
    told: list[str] = []
    engines = Engines(CPU, 2, told.append)
    engines._fitting[of_bf16()] = [Fused, Compiled, Captured]  # as if this were a GPU
    assert isinstance(engines.engine(of_bf16(), patches(), 2), Eager)
    assert [line.split(":")[0] for line in told] == ["resnet20", "resnet20"]  # two say the same
    assert all("it is trained the slower way" in line for line in told)


# ---- how many at once


DOUBLED = Trial((1, 2, 4, 8), steps=1, worth=1.1)


@pytest.mark.parametrize(
    ("speeds", "planned", "best"),
    [
        ({1: 10, 2: 20, 4: 40, 8: 80}, 100, 8),
        ({1: 10, 2: 20, 4: 21, 8: 80}, 100, 2),  # 4 are not worth it, and what comes behind is not tried
        ({1: 10, 2: 10.9}, 100, 1),
        ({1: 10, 2: 11}, 100, 2),
        ({1: 10, 2: 20}, 100, 2),  # memory does not hold 4
        ({}, 100, 1),  # nor even one: who trains it will say so
        ({1: 10, 2: 20, 4: 40, 8: 80}, 3, 4),  # 4 have room for all three
        ({1: 10, 2: 20, 4: 40, 8: 80}, 4, 4),
        ({1: 10, 2: 20, 4: 40, 8: 80}, 5, 8),
    ],
    ids=str,
)
def test_more_at_once_are_tried_as_long_as_they_are_faster(speeds: dict, planned: int, best: int) -> None:
    assert fastest(DOUBLED, planned, speeds.get) == best


def test_what_memory_will_not_hold_is_not_tried() -> None:
    tried: list[int] = []

    def speed(number: int) -> float:
        tried.append(number)
        return 10 * number

    assert fastest(DOUBLED, 100, speed, lambda: len(tried) < 2) == 2
    assert tried == [1, 2]


def test_one_training_needs_no_trial_and_kinds_that_fail_leave_one_at_a_time() -> None:
    told: list[str] = []
    engines = Engines(CPU, None, told.append)
    engines._fitting[of_bf16()] = [Fused, Compiled, Captured]  # as if this were a GPU
    assert engines.room(of_bf16(), patches(), planned=1) == 1
    assert told == []
    assert engines.room(of_bf16(), patches(), planned=9) == 1
    assert engines._fitting[of_bf16()] == []
    assert [line.split(":")[0] for line in told] == ["resnet20", "resnet20"]
