"""A training is a function of its inputs, and the one that its settings say."""

import math
from functools import partial

import pytest
import torch
from torch.optim import SGD, Adam, AdamW

import activeprune as ap
from activeprune.core.randomness import everybodys_states
from activeprune.data import InMemory
from activeprune.machine import CPU
from activeprune.training import Case, Training, learning_rates, train
from tests.training.makers import DRAWS, FULL, by_itself, half, plain_loop, same, same_result, start_of, training


def test_the_same_inputs_give_the_same_bits() -> None:
    start, masks = start_of(FULL), half(FULL)
    first = by_itself(FULL, 3, start, masks)
    torch.manual_seed(99)
    assert same_result(first, by_itself(FULL, 3, start, masks))
    assert not same(first.state, by_itself(FULL, 4, start, masks).state)


def test_a_training_neither_uses_nor_changes_the_random_state_of_others() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    by_itself(FULL, 3, start_of(FULL))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_training_changes_neither_its_start_nor_its_masks() -> None:
    start, masks = start_of(FULL), half(FULL)
    copies = {name: tensor.clone() for name, tensor in start.items()}
    alive = masks.alive
    by_itself(FULL, 3, start, masks)
    assert same(start, copies)
    assert masks.alive == alive


LOOPS = {
    "sgd": ({"weight_decay": 1e-2}, partial(SGD, momentum=0.9, weight_decay=1e-2)),
    "without momentum": ({"momentum": 0.0}, SGD),
    "nesterov": ({"nesterov": True}, partial(SGD, momentum=0.9, nesterov=True)),
    "adam": ({"optimizer": "adam", "weight_decay": 1e-2}, partial(Adam, weight_decay=1e-2)),
    "adam's betas": ({"optimizer": "adam", "betas": [0.5, 0.9]}, partial(Adam, betas=(0.5, 0.9))),
    "adamw": ({"optimizer": "adamw", "weight_decay": 0.1}, partial(AdamW, weight_decay=0.1)),
    "clipped": ({"clip": 0.1}, partial(SGD, momentum=0.9)),
    "smoothed": ({"label_smoothing": 0.2}, partial(SGD, momentum=0.9)),
    "scheduled": ({"warmup": "3it", "drops": ["1ep"]}, partial(SGD, momentum=0.9)),
    "augmented": ({"augment": "crop_flip"}, partial(SGD, momentum=0.9)),
}


@pytest.mark.parametrize("pruned", [False, True], ids=["dense", "pruned"])
@pytest.mark.parametrize("name", LOOPS)
def test_it_is_the_loop_that_one_would_write_by_hand(name: str, pruned: bool) -> None:
    keys, optimizer = LOOPS[name]
    chosen = training(epochs="6it", **keys)
    start, masks = start_of(chosen), half(chosen) if pruned else None
    rates = learning_rates(chosen, chosen.feed(0).steps).tolist()
    assert len(rates) == 6
    found = by_itself(chosen, 0, start, masks).state
    for tensor_name, tensor in plain_loop(chosen, 0, start, masks, optimizer, rates).items():
        torch.testing.assert_close(found[tensor_name], tensor, rtol=1e-4, atol=1e-6)


def test_a_rewound_training_goes_on_with_the_schedule_and_the_data_of_its_epoch() -> None:
    start = start_of(FULL)
    whole, early = by_itself(FULL, 3, start), by_itself(FULL, 3, start, last=1)
    again = by_itself(FULL, 3, early.state, first=1)
    assert [epoch.epoch for epoch in again.epochs] == [1, 2]
    assert [epoch.lr for epoch in again.epochs] == [epoch.lr for epoch in whole.epochs[1:]]
    assert not same(again.state, whole.state)  # the optimiser started fresh

    plain = training(momentum=0.0)  # where it has nothing to remember
    whole, early = by_itself(plain, 3, start_of(plain)), by_itself(plain, 3, start_of(plain), last=1)
    assert same(by_itself(plain, 3, early.state, first=1).state, whole.state)


def test_iterations_may_end_in_the_middle_of_an_epoch() -> None:
    chosen = training(epochs="11it")
    assert chosen.feed(0).steps == 4
    result = by_itself(chosen, 0, start_of(chosen))
    assert [(epoch.epoch, epoch.step) for epoch in result.epochs] == [(0, 4), (1, 8), (2, 11)]


def test_s_cyc_follows_the_density_of_the_masks() -> None:
    chosen = training(rates="s_cyc", lr=0.01, lr_high=0.1, epochs="1ep")
    masks = half(chosen)
    result = by_itself(chosen, 0, start_of(chosen), masks)
    assert result.epochs[0].lr == pytest.approx(0.01 + 0.09 / (1 + math.exp(-10 * (0.5 - masks.density))))


@pytest.mark.parametrize(
    "changes", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.0}], ids=str
)
def test_a_layer_that_is_left_out_at_first_joins_as_in_a_loop_by_hand(changes: dict) -> None:
    chosen = training(network="tests.training.makers:late", weight_decay=1e-3, epochs="8it", **changes)
    start, masks = start_of(chosen), half(chosen)
    optimizer = partial(SGD, weight_decay=1e-3, foreach=False, **changes)
    by_hand = plain_loop(chosen, 3, start, masks, optimizer, [chosen.lr] * 8)
    result = by_itself(chosen, 3, start, masks)
    assert not torch.equal(start["late.weight"], by_hand["late.weight"])
    for name, tensor in by_hand.items():
        torch.testing.assert_close(result.state[name], tensor, rtol=1e-4, atol=1e-6)


def test_dropout_takes_part_and_is_the_same_each_time() -> None:
    chosen = training(network={"name": "tests.training.makers:small", "dropout": 0.5}, epochs="1ep")
    start = start_of(chosen)
    assert same(by_itself(chosen, 1, start).state, by_itself(chosen, 1, start).state)
    assert not same(by_itself(chosen, 1, start).state, by_itself(training(epochs="1ep"), 1, start).state)


@pytest.mark.parametrize("draws", DRAWS)
def test_what_a_network_draws_is_the_same_each_time(draws: str) -> None:
    """From whichever generator, and whoever has drawn from it before; nobody sees that it was."""
    chosen = training(network={"name": "tests.training.makers:skipping", "draws": draws}, epochs="2ep")
    first = by_itself(chosen, 1, start_of(chosen))
    before = DRAWS[draws]()
    state = everybodys_states(CPU)
    again = by_itself(chosen, 1, start_of(chosen))
    assert everybodys_states(CPU) == state
    assert DRAWS[draws]() != before
    assert same(first.state, again.state)
    assert not same(first.state, by_itself(training(epochs="2ep"), 1, start_of(chosen)).state)


def test_dropout_is_another_in_every_epoch() -> None:
    """With a rate of next to nothing, the loss of two epochs in the same order differs by dropout alone."""
    network = {"name": "tests.training.makers:small", "dropout": 0.5}
    chosen = training(network=network, epochs="2ep", lr=1e-30, momentum=0.0)

    class Repeating(InMemory):
        def _epoch(self, epoch: int):
            return super()._epoch(0)

    own = chosen.feed(1)
    own.__class__ = Repeating
    first, second = train(chosen, Case(own, start_of(chosen))).epochs
    assert first.train_loss != pytest.approx(second.train_loss, rel=1e-4)


def test_no_surrounding_context_keeps_it_from_learning() -> None:
    chosen = training(epochs="1ep")
    start = start_of(chosen)
    plain = by_itself(chosen, 0, start)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert same(by_itself(chosen, 0, start).state, plain.state)


def test_it_learns_handwritten_digits() -> None:
    chosen = Training(network="resnet8", data="digits", optimizer="adam", lr=0.01, epochs="6ep", batch=64)
    result = by_itself(chosen, 0, chosen.build(10, channels=1).state_dict())
    assert result.accuracy > 0.9


# -- mistakes


def test_a_feed_of_another_training_is_refused() -> None:
    chosen = training()
    for feed, message in (
        (training(batch=8).feed(0), "the feed's batch is 8, and the training's 16"),
        (training(augment="crop").feed(0), "the feed's augment is crop, and the training's none"),
    ):
        with pytest.raises(ap.InputError, match=message):
            train(chosen, Case(feed, start_of(chosen)))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"first": 3}, "epochs 3 to 3: this training has epochs 0 to 3"),
        ({"last": 4}, "epochs 0 to 4"),
        ({"first": -1}, "first = -1: at least 0 is needed"),
        ({"last": 0}, "last = 0: at least 1 is needed"),
        ({"first": 1.5}, "first = 1.5: a whole number is needed"),
        ({"last": True}, "last = True"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
    ],
)
def test_epochs_that_the_training_does_not_have_are_refused(keywords: dict, message: str) -> None:
    chosen = training()
    with pytest.raises(ap.InputError, match=message):
        by_itself(chosen, 0, start_of(chosen), **keywords)


def test_a_batch_larger_than_the_data_is_refused_before_anything_runs() -> None:
    chosen = training(batch=100)
    with pytest.raises(ap.InputError, match="batch = 100 of 72 training images"):
        by_itself(chosen, 0, start_of(chosen))
