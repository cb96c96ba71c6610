"""A model that is measured is left as it was, and measured as it was."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune as torchs_prune

import activeprune as ap
from activeprune.neurons import DeadNeuronCounter
from tests.helpers import Net, SmallNet, random_masks, same_state, snapshot
from tests.neurons.makers import TWO, counts, linear, measured, pruned


def everything_about(model: nn.Module) -> list:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks")
    return [
        (name, module.training, [list(getattr(module, kind)) for kind in kinds], list(vars(module)))
        for name, module in model.named_modules()
    ] + [(name, id(p), p.requires_grad, p.grad, p._version) for name, p in model.named_parameters()]


@pytest.mark.parametrize("options", [{}, {"batch_statistics": True}])
def test_nothing_of_the_model_or_of_torch_is_changed(options: dict) -> None:
    """Nor of its buffers, though its batch-norm layers and a counter of its own write into them."""

    def forward(net, x):
        net.seen += 1
        return F.dropout(net.inner(x), 0.5, training=True)

    model = Net(forward, inner=SmallNet().train(), act=nn.ReLU())
    model.register_buffer("seen", torch.zeros(()))
    model.inner.conv1.eval()
    model.inner.conv1.weight.requires_grad_(False)
    model.inner.register_forward_hook(lambda *_: None)
    state, about = snapshot(model), everything_about(model)
    random, hooks = torch.get_rng_state(), len(nn.modules.module._global_forward_hooks)
    one = ap.dead_neurons(
        model, random_masks(model), [torch.randn(4, 2, 6, 6, generator=torch.Generator())] * 2, **options
    )
    assert same_state(model, state)
    assert everything_about(model) == about
    assert torch.equal(torch.get_rng_state(), random)
    assert len(nn.modules.module._global_forward_hooks) == hooks
    torch.manual_seed(1)
    again = ap.dead_neurons(
        model, random_masks(model), [torch.randn(4, 2, 6, 6, generator=torch.Generator())] * 2, **options
    )
    assert one == again


def test_hooks_of_torchs_own_pruning_leave_no_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    torchs_prune.l1_unstructured(model[0], "weight", 0.5)
    before = model[0].weight
    ap.dead_neurons(model, None, [torch.randn(5, 4)])
    assert model[0].weight is before
    assert before.grad_fn is not None


def test_pruned_weights_count_as_0_whatever_the_model_holds() -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU())
    before = snapshot(model)
    assert counts(measured(model, TWO, {"0": [0]}).unit) == (2, 1, 4)
    assert same_state(model, before)


def test_a_counter_holds_the_network_that_it_was_made_with() -> None:
    model = nn.Sequential(linear([[1, -1]]), nn.BatchNorm1d(1), nn.ReLU())
    counter = DeadNeuronCounter(model, ap.Masks.dense(model))
    counter.add(TWO)
    model[0].weight.data.neg_()
    model[1].bias.data.fill_(9.0)
    model[1].running_mean.fill_(9.0)
    counter.add(TWO)
    assert counts(counter.result().unit) == (0, 2, 4)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_it_works_in_any_mode_of_autograd(context) -> None:
    model = nn.Sequential(linear([[1, 1], [1, -1]]), nn.ReLU(inplace=True), nn.Linear(2, 2), nn.ReLU())
    expected = measured(model, TWO, {"0": [0]})
    with context():
        inside = TWO.clone()
        counter = DeadNeuronCounter(model, pruned(model, {"0": [0]}))
        counter.add(inside)
    assert counter.result() == expected
    with torch.inference_mode():
        counter.add(inside)
        assert counter.result().unit.total == expected.unit.total


def test_a_forward_pass_in_inference_mode_is_counted_too() -> None:
    model = Net(torch.inference_mode()(lambda net, x: torch.relu(net.a(x))), a=linear([[1, 1], [1, -1]]))
    counter = DeadNeuronCounter(model)
    for _ in range(2):
        counter.add(TWO)
    assert counts(counter.result().unit) == (0, 2, 8)
