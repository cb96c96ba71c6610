"""In which precision things are computed."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(tensor: Tensor) -> Tensor:
    """Half precision as float32, anything wider as it is: results never depend on how a value is stored."""
    return tensor.detach().to(torch.float32) if tensor.dtype.itemsize < 4 else tensor.detach()
