"""What holds of every method, and what each says of itself."""

import pytest
import torch
from torch import nn

import activeprune as ap
from activeprune.core.methods import METHODS
from tests.core.methods.makers import assert_alive_close
from tests.helpers import SmallNet, random_masks, same_state, small_batches, snapshot

DERIVATIVES = ["global_gradient", "snip", "fisher", "obd", "synflow"]
NEEDS_BATCHES = [name for name in METHODS if METHODS[name].batches]
FREE = [name for name in METHODS if not METHODS[name].batches and not METHODS[name].graph]


def test_methods_say_which_chain_they_are_defined_for() -> None:
    chains = {"imp": "rewind", "snip": "at_init", "synflow": "at_init", "lamp": None, "obd": None}
    assert {name: METHODS[name].chain for name in chains} == chains


def test_every_method_says_how_many_batches_it_wants() -> None:
    assert set(DERIVATIVES) <= set(NEEDS_BATCHES)
    assert {"global_magnitude", "layer_magnitude", "imp", "lamp", "random"} <= set(FREE)
    assert METHODS["global_gradient"].batches == METHODS["fisher"].batches == 20
    assert METHODS["synflow"].batches == 1


@pytest.mark.parametrize("method", sorted(METHODS))
def test_scoring_changes_nothing_in_the_model(method: str) -> None:
    model = SmallNet()
    model.bn1.eval()
    model.fc.weight.grad = torch.ones_like(model.fc.weight)
    modes, before = [m.training for m in model.modules()], snapshot(model)
    masks, batches = random_masks(model), small_batches()
    with torch.no_grad():  # a caller's mode must not matter
        scores = ap.score(method, model, masks, batches)
    with torch.inference_mode():
        again = ap.score(method, model, masks, batches)
    assert all(torch.equal(scores[name], again[name]) for name in masks)
    assert same_state(model, before)
    assert [m.training for m in model.modules()] == modes
    assert (model.fc.weight.grad == 1).all()
    assert model.conv1.weight.grad is None
    assert all(not score.requires_grad and score.shape == masks[name].shape for name, score in scores.items())


@pytest.mark.parametrize("method", FREE)
def test_equal_values_in_bfloat16_channels_last_and_float32_give_the_same_masks(method: str) -> None:
    wide = SmallNet().bfloat16().float()
    narrow = SmallNet().bfloat16()
    last = SmallNet().to(memory_format=torch.channels_last)
    for copy in (narrow, last):
        copy.load_state_dict(wide.state_dict())
    masks = random_masks(wide)
    expected = ap.prune_cycle(method, wide, masks, 40).masks
    assert ap.prune_cycle(method, narrow, masks, 40).masks == expected
    assert ap.prune_cycle(method, last, masks, 40).masks == expected


@pytest.mark.parametrize("method", NEEDS_BATCHES)
def test_methods_with_gradients_agree_to_rounding_in_channels_last(method: str) -> None:
    model = SmallNet()
    last = SmallNet().to(memory_format=torch.channels_last)
    last.load_state_dict(model.state_dict())
    masks, batches = random_masks(model), small_batches()
    assert_alive_close(
        ap.score(method, last, masks, batches), ap.score(method, model, masks, batches), masks, rtol=1e-3
    )


@pytest.mark.parametrize("method", NEEDS_BATCHES)
def test_methods_that_need_batches_say_so(method: str) -> None:
    model = SmallNet()
    for nothing in (None, []):
        with pytest.raises(ap.InputError, match=f"method '{method}': it needs batches"):
            ap.score(method, model, ap.Masks.dense(model), nothing)


def test_a_layer_that_the_loss_does_not_reach_scores_zero() -> None:
    class Unused(SmallNet):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(2, 2)

    model = Unused()
    for method in DERIVATIVES:
        scores = ap.score(method, model, ap.Masks.dense(model), small_batches(1))
        assert (scores["spare.weight"] == 0).all()
