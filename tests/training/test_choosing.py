"""Which engine is chosen for what, as far as it can be told without a GPU."""

import pytest
import torch

from activeprune.data import Dataset, Images
from activeprune.training import Training
from activeprune.training.captured import Captured
from activeprune.training.choosing import Engines
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
        assert engines.room(of_bf16(), patches()) == room
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
