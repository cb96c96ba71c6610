"""Many small tensors go to another device in one transfer."""

import torch

from activeprune.neurons.carrying import CPU, carried

META = torch.device("meta")


def test_many_tensors_in_one_transfer_keep_shapes_types_and_order() -> None:
    tensors = [torch.arange(6).view(2, 3), torch.ones(4), torch.tensor(7), torch.zeros(0, 2), torch.ones(2)]
    there = carried(tensors, META)
    assert [(one.shape, one.dtype, one.device) for one in there] == [(one.shape, one.dtype, META) for one in tensors]
    assert all(a is b for a, b in zip(carried(tensors, CPU), tensors, strict=True))
