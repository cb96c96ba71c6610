"""The flat row is the network: nothing is lost on the way there and back, and no two numbers share a place."""

from __future__ import annotations

import pytest
import torch

from activeprune.networks.cifar_resnet import CifarResNet
from activeprune.training.fused.layout import ALIGNMENT, MOMENTUM, Layout, fragments

CASES = [(8, "conv", 10), (20, "conv", 10), (20, "pad", 100), (32, "pad", 10)]


@pytest.fixture(params=CASES, ids=str)
def network(request):
    depth, shortcut, classes = request.param
    torch.manual_seed(depth)
    model = CifarResNet(depth, classes, 3, shortcut)
    for buffer in model.buffers():
        buffer.copy_(torch.rand_like(buffer) if buffer.is_floating_point() else torch.tensor(7))
    return model, Layout(depth, shortcut, classes)


def test_a_state_survives_the_row(network):
    model, layout = network
    state = model.state_dict()
    layout.check(state)
    back = layout.state(layout.row(state), layout.running(state), 7)
    assert list(back) == list(state)
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor), name
        assert back[name].dtype == tensor.dtype
        assert back[name].is_contiguous()


def test_momentum_survives_the_row(network):
    model, layout = network
    momentum = {f"{name}{MOMENTUM}": torch.randn_like(p) for name, p in model.named_parameters()}
    back = layout.tensors(layout.row(momentum, MOMENTUM), MOMENTUM)
    assert list(back) == list(momentum)
    assert all(torch.equal(back[name], tensor) for name, tensor in momentum.items())


def test_masks_cover_the_weights_and_nothing_else(network):
    model, layout = network
    masks = {n: torch.rand_like(p) < 0.5 for n, p in model.named_parameters() if p.ndim > 1}
    row = layout.mask_row(masks)
    kept = layout.tensors(row.float())
    for name, parameter in model.named_parameters():
        wanted = masks.get(name, torch.ones_like(parameter, dtype=torch.bool))
        assert torch.equal(kept[name].bool(), wanted), name
    assert layout.mask_row(None).sum() == sum(p.numel() for p in model.parameters())


def test_a_foreign_state_is_refused(network):
    model, layout = network
    state = model.state_dict()
    with pytest.raises(ValueError, match=r"differs in fc\.bias"):
        layout.check({**state, "fc.bias": torch.zeros(3)})
    with pytest.raises(ValueError, match="differs in extra"):
        layout.check({**state, "extra": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"conv\.weight has the shape"):
        layout.row({"conv.weight": torch.zeros(16, 3, 3)})


def test_every_tensor_starts_where_a_block_of_the_update_does(network):
    _, layout = network
    end = 0
    for parameter in layout.parameters.values():
        assert parameter.start == end
        assert parameter.start % ALIGNMENT == 0
        end = parameter.start + -(-parameter.length // ALIGNMENT) * ALIGNMENT
    assert layout.size == end


def test_every_weight_has_one_place_among_the_packed(network):
    _, layout = network
    for slots, convolutions in (
        (layout.forward_slots, layout.convolutions),
        (layout.backward_slots, layout.convolutions[1:]),
    ):
        used = slots[slots >= 0]
        assert len(used.unique()) == len(used) == sum(conv.weight.length for conv in convolutions)
        for conv in convolutions:
            own = slots[conv.weight.start : conv.weight.start + conv.weight.length]
            assert own.min() == conv.packed
            assert own.max() == conv.packed + conv.weight.length - 1


@pytest.mark.parametrize(("taps", "inputs", "outputs"), [(9, 16, 32), (1, 48, 16), (9, 64, 64)])
def test_fragments_are_what_the_matrix_instruction_wants(taps, inputs, outputs):
    """Its second operand: register r of a lane holds inputs 8 r + 2 (lane % 4) and the next, of output lane // 4."""
    tap, k, n = (
        index.view(taps, inputs // 16, outputs // 16, 32, 2, 2, 2) for index in fragments(taps, inputs, outputs)
    )
    for lane in (0, 5, 31):
        for register in range(2):
            inside = k[0, 0, 0, lane, 0, register]
            assert inside.tolist() == [8 * register + lane % 4 * 2, 8 * register + lane % 4 * 2 + 1]
    assert torch.equal(tap[:, 0, 0, 0, 0, 0, 0], torch.arange(taps))
    # a thread's results are columns 2 (lane % 4) and the next of every tile: together, neighbours
    run = 4 if outputs == 16 else 8
    columns = n[0, 0, :, ::4, :, 0, 0].permute(0, 2, 1).reshape(-1, 4, 2)  # [tile, thread, odd]
    mine = columns[: run // 2, 1].reshape(-1)
    assert mine.tolist() == list(range(run, 2 * run))
