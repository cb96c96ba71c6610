"""What the fused engine refuses before anything runs."""

import pytest
import torch

from activeprune.training.fused import FusedResNets, Layout, Recipe
from activeprune.training.unavailable import EngineUnavailable

IMAGES, LABELS = torch.zeros(16, 3, 32, 32, dtype=torch.uint8), torch.zeros(16, dtype=torch.int64)
LAYOUT = Layout(20, "conv", 10)


def test_a_machine_without_a_gpu_is_told_so() -> None:
    with pytest.raises(EngineUnavailable, match="need an NVIDIA GPU that torch can use, not cpu"):
        FusedResNets(LAYOUT, Recipe(), IMAGES, LABELS, 1)


def test_what_the_kernels_are_not_made_for_is_named() -> None:
    with pytest.raises(ValueError, match="batch = 12"):
        FusedResNets(LAYOUT, Recipe(batch=12), IMAGES, LABELS, 1)
    with pytest.raises(ValueError, match=r"images of \(3, 64, 64\)"):
        FusedResNets(LAYOUT, Recipe(), torch.zeros(16, 3, 64, 64, dtype=torch.uint8), LABELS, 1)
    with pytest.raises(ValueError, match=r"bytes \[N, 3, 32, 32\] and N labels are needed, not torch.float32"):
        FusedResNets(LAYOUT, Recipe(), IMAGES.float(), LABELS, 1)
    with pytest.raises(ValueError, match="and 9 labels"):
        FusedResNets(LAYOUT, Recipe(), IMAGES, LABELS[:9], 1)
