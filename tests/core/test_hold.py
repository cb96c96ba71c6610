"""Pruned stays pruned: exactly 0.0 through every optimiser, precision and checkpoint."""

import copy
import gc
import io
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import activeprune as ap
from tests.helpers import OPTIMIZERS, SmallNet, pruned_are_zero, random_masks, small_batches, snapshot, train


def remembered(optimizer: torch.optim.Optimizer, model: nn.Module, masks: ap.Masks) -> list[Tensor]:
    """All that the optimiser remembers of pruned weights."""
    weights = dict(model.named_parameters())
    return [
        value[~mask]
        for name, mask in masks.items()
        for value in optimizer.state[weights[name]].values()
        if isinstance(value, Tensor) and value.shape == mask.shape
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruned_weights_stay_zero_and_the_others_learn(name: str) -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = OPTIMIZERS[name](model.parameters())
    masks.hold(model, optimizer=optimizer)
    before = snapshot(model)
    train(model, optimizer)
    assert pruned_are_zero(model, masks)
    assert not torch.equal(model.fc.weight, before["fc.weight"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruning_in_the_middle_of_training_clears_the_momentum_of_newly_pruned_weights(name: str) -> None:
    model = SmallNet()
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer)
    masks = random_masks(model, alive=0.8)
    masks.hold(model, optimizer)
    states = remembered(optimizer, model, masks)
    assert states
    assert all((state == 0).all() for state in states)
    train(model, optimizer)
    assert pruned_are_zero(model, masks)
    fewer = ap.prune_cycle("global_magnitude", model, masks, masks.alive // 2).masks
    fewer.hold(model, optimizer)
    train(model, optimizer)
    assert pruned_are_zero(model, fewer)
    assert all((state == 0).all() for state in remembered(optimizer, model, fewer))


def test_without_hold_momentum_does_revive_a_pruned_weight() -> None:
    """The fault that `hold` exists for."""
    model = SmallNet()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    train(model, optimizer)
    masks = random_masks(model)
    masks.apply_(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert not pruned_are_zero(model, masks)


def test_a_held_training_is_the_training_of_the_masked_network() -> None:
    """Against an independent loop that multiplies the weights by the masks inside the forward pass."""
    held, plain = SmallNet().eval(), SmallNet().eval()
    plain.load_state_dict(held.state_dict())
    masks = random_masks(held)
    masks.apply_(plain)
    optimizer = torch.optim.SGD(held.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    masks.hold(held, optimizer)
    train(held, optimizer, steps=4)
    momentum = {name: torch.zeros_like(p) for name, p in plain.named_parameters()}
    for x, y in small_batches(4):
        leaves = {name: p.detach().clone().requires_grad_() for name, p in plain.named_parameters()}
        masked = {name: leaf * masks[name] if name in masks else leaf for name, leaf in leaves.items()}
        cross_entropy(torch.func.functional_call(plain, masked, x), y).backward()
        for name, p in plain.named_parameters():
            momentum[name] = 0.9 * momentum[name] + leaves[name].grad + 1e-3 * p.detach()
            p.data -= 0.1 * momentum[name]
    for name, p in plain.named_parameters():
        torch.testing.assert_close(dict(held.named_parameters())[name], p)


def test_autocast_and_gradient_scaling() -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    masks.hold(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for x, y in small_batches(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.state  # steps were taken
    assert pruned_are_zero(model, masks)


def test_gradient_accumulation_and_clipping_see_alive_weights_only() -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    masks.hold(model, optimizer)
    for x, y in small_batches(3):
        cross_entropy(model(x), y).backward()
    weights = dict(model.named_parameters())
    assert all((weights[name].grad[~mask] == 0).all() for name, mask in masks.items())
    alive = [weights[name].grad[mask] if (mask := masks.get(name)) is not None else p.grad.flatten()
             for name, p in weights.items()]  # fmt: skip
    expected = torch.cat(alive).norm()
    torch.testing.assert_close(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9), expected)
    optimizer.step()
    assert pruned_are_zero(model, masks)


def test_torch_compile_keeps_them_too() -> None:
    model = SmallNet()
    masks = random_masks(model)
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = OPTIMIZERS["adamw"](compiled.parameters())
    masks.hold(compiled, optimizer)
    train(compiled, optimizer, steps=3)
    assert pruned_are_zero(model, masks)


def test_a_dense_checkpoint_is_masked_as_it_is_loaded() -> None:
    model, dense = SmallNet(), SmallNet()
    masks = random_masks(model)
    masks.hold(model, OPTIMIZERS["sgd"](model.parameters()))
    model.load_state_dict(dense.state_dict())
    assert pruned_are_zero(model, masks)
    model.conv1.load_state_dict(dense.conv1.state_dict())
    assert pruned_are_zero(model, masks)
    model.load_state_dict(snapshot(dense), assign=True)
    assert pruned_are_zero(model, masks)
    assert torch.equal(model.fc.weight[masks["fc.weight"]], dense.fc.weight[masks["fc.weight"]])


def test_the_optimisers_checkpoint_brings_no_momentum_back() -> None:
    model = SmallNet()
    optimizer = OPTIMIZERS["adam"](model.parameters())
    train(model, optimizer)
    dense = copy.deepcopy(optimizer.state_dict())
    masks = random_masks(model)
    masks.hold(model, optimizer)
    optimizer.load_state_dict(dense)
    assert all((state == 0).all() for state in remembered(optimizer, model, masks))
    train(model, optimizer, steps=2)
    assert pruned_are_zero(model, masks)


def test_names_modules_and_keys_stay_what_they_were() -> None:
    model = SmallNet()
    keys, modules = list(model.state_dict()), [type(m) for m in model.modules()]
    masks = random_masks(model)
    masks.hold(model, OPTIMIZERS["sgd"](model.parameters()))
    assert list(model.state_dict()) == keys
    assert [type(m) for m in model.modules()] == modules


def test_a_held_model_can_be_copied_and_pickled_and_the_copies_are_free() -> None:
    model = SmallNet()
    masks = random_masks(model)
    masks.hold(model, OPTIMIZERS["sgd"](model.parameters()))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    for twin in (copy.deepcopy(model), torch.load(buffer, weights_only=False)):
        assert torch.equal(twin.fc.weight, model.fc.weight)
        twin.load_state_dict(SmallNet().state_dict())
        assert not pruned_are_zero(twin, masks)
        assert pruned_are_zero(model, masks)


class Noisy(torch.optim.SGD):
    """Moves every weight, whatever its gradient."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p += 0.1


def test_even_an_optimiser_that_moves_weights_without_a_gradient_is_held() -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = Noisy(model.parameters(), lr=0.1)
    masks.hold(model, optimizer)
    train(model, optimizer, steps=2)
    assert pruned_are_zero(model, masks)


def test_gradients_that_arrive_by_other_ways_leave_no_momentum() -> None:
    model = SmallNet()
    model.fc.weight.requires_grad_(False)
    masks = random_masks(model)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    masks.hold(model, optimizer)
    model.fc.weight.requires_grad_()  # unfrozen later
    train(model, optimizer, steps=2)
    for p in model.parameters():
        p.grad = torch.ones_like(p)  # set by hand
    optimizer.step()
    assert pruned_are_zero(model, masks)
    assert all((state == 0).all() for state in remembered(optimizer, model, masks))


def test_gradients_that_are_there_already_are_cleared() -> None:
    model = SmallNet()
    masks = random_masks(model)
    cross_entropy(model(small_batches(1)[0][0]), small_batches(1)[0][1]).backward()
    masks.hold(model, OPTIMIZERS["sgd"](model.parameters()))
    weights = dict(model.named_parameters())
    assert all((weights[name].grad[~mask] == 0).all() for name, mask in masks.items())


def test_a_model_with_two_optimisers_needs_both() -> None:
    model = SmallNet()
    masks = random_masks(model)
    convolutions = [p for name, p in model.named_parameters() if not name.startswith("fc")]
    first, second = OPTIMIZERS["sgd"](convolutions), OPTIMIZERS["adam"](model.fc.parameters())
    with pytest.raises(ap.InputError, match=r"the optimiser does not have 'fc.weight': pass every optimiser"):
        masks.hold(model, first)
    masks.hold(model, first, second)
    for x, y in small_batches(4):
        cross_entropy(model(x), y).backward()
        for optimizer in (first, second):
            optimizer.step()
            optimizer.zero_grad()
    assert pruned_are_zero(model, masks)


def test_a_model_has_one_hold_and_the_last_one_counts() -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    masks.hold(model, optimizer)
    hooks = len(optimizer._optimizer_step_post_hooks)
    ap.Masks.dense(model).hold(model, optimizer)
    assert len(optimizer._optimizer_step_post_hooks) == hooks
    train(model, optimizer, steps=2)
    assert not pruned_are_zero(model, masks)  # free again


def test_a_hold_that_nobody_removed_is_freed_with_its_model() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    freed = [weakref.ref(module) for module in model.modules()]
    ap.Masks.dense(model).hold(model, OPTIMIZERS["sgd"](model.parameters()))
    del model
    gc.collect()
    assert [reference() for reference in freed] == [None, None, None]


def test_a_hold_whose_optimiser_was_dropped_ends_with_the_next_one() -> None:
    model = SmallNet()
    masks = random_masks(model)
    masks.hold(model, OPTIMIZERS["sgd"](model.parameters()))  # nobody keeps the optimiser or the hold
    gc.collect()
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    ap.Masks.dense(model).hold(model, optimizer)
    x, y = small_batches(1)[0]
    cross_entropy(model(x), y).backward()
    assert (model.fc.weight.grad[~masks["fc.weight"]] != 0).any()
    model.load_state_dict(SmallNet().state_dict())
    assert not pruned_are_zero(model, masks)


def test_removing_the_hold_lets_weights_go() -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    with masks.hold(model, optimizer) as handle:
        train(model, optimizer, steps=1)
        assert pruned_are_zero(model, masks)
    handle.remove()  # a second time does no harm
    train(model, optimizer, steps=1)
    assert not pruned_are_zero(model, masks)


def test_frozen_weights_are_masked_though_they_have_no_gradient() -> None:
    model = SmallNet()
    model.conv1.weight.requires_grad_(False)
    masks = random_masks(model)
    optimizer = OPTIMIZERS["sgd"]([p for p in model.parameters() if p.requires_grad])
    masks.hold(model, optimizer)
    train(model, optimizer)
    assert pruned_are_zero(model, masks)


def test_an_optimiser_of_another_model_is_refused_before_anything_changes() -> None:
    model = SmallNet()
    before = snapshot(model)
    with pytest.raises(ap.InputError, match=r"the optimiser does not have 'conv1.weight'"):
        random_masks(model).hold(model, torch.optim.SGD(SmallNet().parameters(), lr=0.1))
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
