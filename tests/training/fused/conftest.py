"""The fused kernels on a GPU, where there is one, and on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from activeprune.training.fused import FusedResNets, resnets
from tests.training.fused.emulator import COMPILER, Emulated, compiled


class Replay:
    """What stands in for a CUDA graph on a CPU: its kernels, one after the other."""

    def __init__(self, engine: FusedResNets, training: bool) -> None:
        self.launches = [one for branch in engine._launches[training] for one in branch.launches]

    def replay(self) -> None:
        for one in self.launches:
            one.launch(False)


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    return compiled(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where the kernels run."""
    if request.param == "cpu":
        kernels = request.getfixturevalue("emulated")
        kernels.schedule(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(resnets, "kernels", lambda device: kernels)
            patch.setattr(FusedResNets, "_graph", lambda engine, training: Replay(engine, training))
            patch.setattr(resnets, "EVALUATED_OF_ONE", 32)  # few, and the last ones not full
            yield torch.device("cpu")
    else:
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.deterministic = True
        yield torch.device("cuda")


@pytest.fixture
def data(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """512 images of ten classes that can be told apart, and their labels."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 10, (512,), generator=generator)
    patterns = torch.randint(0, 256, (10, 3, 4, 4), generator=generator).float()
    patterns = torch.nn.functional.interpolate(patterns, size=32)
    noise = torch.randint(0, 256, (512, 3, 32, 32), generator=generator)
    images = (0.4 * patterns[labels] + 0.6 * noise).to(torch.uint8)
    return images.to(device), labels.to(device)
