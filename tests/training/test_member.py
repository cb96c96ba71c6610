"""One network in training: its weights, its optimiser and its steps."""

import pytest
import torch

import activeprune as ap
from activeprune.training.member import Member
from tests.helpers import pruned_are_zero
from tests.training.makers import by_itself, half, same, start_of, training


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_pruned_weights_are_zero_to_the_bit(optimizer: str) -> None:
    chosen = training(optimizer=optimizer, weight_decay=0.1, precision="bf16")
    masks = half(chosen)
    model = chosen.build(num_classes=2, channels=2)
    model.load_state_dict(by_itself(chosen, 0, start_of(chosen), masks).state)
    assert pruned_are_zero(model, masks)


def test_what_pruned_weights_would_have_learnt_does_not_count_in_the_gradients_norm() -> None:
    """Clipped far below its own norm, a step moves what is alive by just the clip; with more in the norm, by less."""
    chosen = training(epochs="1it", momentum=0.0, clip=1e-4, lr=1.0)
    start, masks = start_of(chosen), half(chosen)
    end = by_itself(chosen, 0, start, masks).state
    model = chosen.build(num_classes=2, channels=2)
    moved = [
        (end[name] - start[name] * masks[name] if name in masks else end[name] - start[name]).flatten()
        for name, _ in model.named_parameters()
    ]
    assert torch.cat(moved).norm().item() == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_number_of_a_state_that_is_not_finite_is_seen(bad: float) -> None:
    """In any place of any tensor; the largest of all finite numbers is one, and a tensor may be empty."""
    chosen = training()
    model = chosen.build(num_classes=2, channels=2)
    model.register_buffer("nothing", torch.zeros(0))
    member = Member(chosen, model, model.state_dict(), None, torch.device("cpu"))
    model[0].weight.data[-1, -1, -1, -1] = torch.finfo(torch.float32).max
    assert member.is_finite()
    for tensor in model.state_dict().values():
        if tensor.is_floating_point() and tensor.numel():
            kept = tensor.view(-1)[-1].item()
            tensor.view(-1)[-1] = bad
            assert not member.is_finite()
            tensor.view(-1)[-1] = kept
    assert member.is_finite()


def test_bf16_keeps_weights_and_statistics_in_float32() -> None:
    chosen = training(precision="bf16")
    start = start_of(chosen)
    result = by_itself(chosen, 0, start)
    assert all(tensor.dtype == start[name].dtype for name, tensor in result.state.items())
    full = by_itself(training(), 0, start)
    assert not same(result.state, full.state)
    for name, tensor in full.state.items():
        torch.testing.assert_close(result.state[name], tensor, rtol=0.1, atol=0.02)


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        ("frozen", "nothing to train in .*frozen: no parameter requires a gradient"),
        ("one_output", r"one_output gives \(8, 1\) for a batch where \(8, 2\) is needed"),
        ("two_things", "two_things gives tuple for a batch"),
    ],
)
def test_a_network_that_cannot_be_trained_is_refused_before_it_starts(builder: str, message: str) -> None:
    chosen = training(network=f"tests.training.makers:{builder}")
    with pytest.raises(ap.InputError, match=message):
        by_itself(chosen, 0, start_of(chosen))


def test_a_start_of_another_network_is_refused() -> None:
    chosen = training()
    start = start_of(chosen)
    with pytest.raises(ap.InputError, match=r"not one of this .*: it differs in '5\.weight'"):
        by_itself(chosen, 0, {**start, "5.weight": torch.zeros(2, 7)})
    with pytest.raises(ap.InputError, match=r"it differs in '0\.weight'"):
        by_itself(chosen, 0, {name: tensor for name, tensor in start.items() if name != "0.weight"})
