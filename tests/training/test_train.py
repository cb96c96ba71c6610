"""A training is a function of its inputs, and the one that its settings say."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW

import activeprune as ap
from activeprune.data import InMemory
from activeprune.training import Checkpoint, Epoch, Result, Training, learning_rates, train
from activeprune.training.result import best_epoch
from tests.helpers import pruned_are_zero
from tests.training.makers import half, plain_loop, same, same_result, start_of, training

FULL = training(
    augment="crop_flip", momentum=0.9, nesterov=True, weight_decay=1e-3, warmup="2it", drops=["2ep"], clip=1.0,
    label_smoothing=0.1, network={"name": "tests.training.makers:small", "dropout": 0.3},
)  # fmt: skip


def test_the_same_inputs_give_the_same_bits() -> None:
    start, masks = start_of(FULL), half(FULL)
    first = train(FULL, 3, start, masks)
    torch.manual_seed(99)
    assert same_result(first, train(FULL, 3, start, masks))
    assert not same(first.state, train(FULL, 4, start, masks).state)


def test_a_training_neither_uses_nor_changes_the_random_state_of_others() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    train(FULL, 3, start_of(FULL))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_training_changes_neither_its_start_nor_its_masks() -> None:
    start, masks = start_of(FULL), half(FULL)
    copies = {name: tensor.clone() for name, tensor in start.items()}
    alive = masks.alive
    train(FULL, 3, start, masks)
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
    found = train(chosen, 0, start, masks).state
    for tensor_name, tensor in plain_loop(chosen, 0, start, masks, optimizer, rates).items():
        torch.testing.assert_close(found[tensor_name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_pruned_weights_are_zero_to_the_bit(optimizer: str) -> None:
    chosen = training(optimizer=optimizer, weight_decay=0.1, precision="bf16")
    masks = half(chosen)
    model = chosen.build(num_classes=2, channels=2)
    model.load_state_dict(train(chosen, 0, start_of(chosen), masks).state)
    assert pruned_are_zero(model, masks)


def test_what_pruned_weights_would_have_learnt_does_not_count_in_the_gradients_norm() -> None:
    """With a clip between the norm of the alive and that of all gradients the two would differ; see `plain_loop`."""
    chosen = training(epochs="1it", momentum=0.0, clip=1e-4, lr=1.0)
    start, masks = start_of(chosen), half(chosen)
    end = train(chosen, 0, start, masks).state
    model = chosen.build(num_classes=2, channels=2)
    moved = [
        (end[name] - start[name] * masks[name] if name in masks else end[name] - start[name]).flatten()
        for name, _ in model.named_parameters()
    ]
    assert torch.cat(moved).norm().item() == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_going_on_from_a_checkpoint_changes_nothing(optimizer: str, tmp_path: Path) -> None:
    chosen = FULL.model_copy(update={"optimizer": optimizer, "nesterov": False})
    start, masks = start_of(chosen), half(chosen)
    saved: list[Path] = []

    def keep(record: Epoch, checkpoint) -> None:
        saved.append(tmp_path / f"{record.epoch}.safetensors")
        checkpoint().save(saved[-1])

    whole = train(chosen, 3, start, masks, after_epoch=keep)
    assert len(saved) == 3
    for path in saved:
        resumed = train(chosen, 3, start, masks, resume=Checkpoint.load(path))
        assert same_result(whole, resumed)
        assert resumed.seconds > 0


def test_a_checkpoint_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        keep = lambda record, checkpoint, path=path: replace(checkpoint(), seconds=0.0).save(path)  # noqa: E731
        train(FULL, 3, start_of(FULL), last=1, after_epoch=keep)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ap.InputError, match="broken is no checkpoint of a training"):
        Checkpoint.load(path)


def test_a_rewound_training_goes_on_with_the_schedule_and_the_data_of_its_epoch() -> None:
    start = start_of(FULL)
    whole, early = train(FULL, 3, start), train(FULL, 3, start, last=1)
    again = train(FULL, 3, early.state, first=1)
    assert [epoch.epoch for epoch in again.epochs] == [1, 2]
    assert [epoch.lr for epoch in again.epochs] == [epoch.lr for epoch in whole.epochs[1:]]
    assert not same(again.state, whole.state)  # the optimiser started fresh

    plain = training(momentum=0.0)  # where it has nothing to remember
    whole, early = train(plain, 3, start_of(plain)), train(plain, 3, start_of(plain), last=1)
    assert same(train(plain, 3, early.state, first=1).state, whole.state)


def test_iterations_may_end_in_the_middle_of_an_epoch() -> None:
    chosen = training(epochs="11it")
    assert chosen.feed(0).steps == 4
    result = train(chosen, 0, start_of(chosen))
    assert [(epoch.epoch, epoch.step) for epoch in result.epochs] == [(0, 4), (1, 8), (2, 11)]


def test_the_records_are_what_the_state_does(tmp_path: Path) -> None:
    chosen = training()
    result = train(chosen, 0, start_of(chosen))
    model = chosen.build(num_classes=2, channels=2).eval()
    model.load_state_dict(result.state)
    feed = chosen.feed(0)
    for part, found in (("validation", "validation_accuracy"), ("test", "test_accuracy")):
        batches = list(feed.evaluation(part))
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
        assert getattr(result.epochs[-1], found) == right / sum(len(y) for _, y in batches)
    batches = list(feed.evaluation("validation"))
    losses = torch.cat([cross_entropy(model(x), y, reduction="none") for x, y in batches])
    assert result.epochs[-1].validation_loss == pytest.approx(losses.mean().item(), rel=1e-5)
    assert result.images_per_second > 0
    assert result.epochs[-1].train_loss < result.epochs[0].train_loss


def test_training_loss_and_accuracy_are_means_over_the_epochs_steps() -> None:
    """With a rate of next to nothing the network stays what it was, so that the means can be taken afterwards."""
    chosen = training(epochs="1ep", lr=1e-30, momentum=0.0, label_smoothing=0.2)
    start = start_of(chosen)
    record = train(chosen, 0, start).epochs[0]
    model = chosen.build(num_classes=2, channels=2).train()
    model.load_state_dict(start)
    batches = list(chosen.feed(0).training(0))
    losses = [cross_entropy(model(x), y, label_smoothing=0.2).item() for x, y in batches]
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
    assert record.train_loss == pytest.approx(sum(losses) / 4, rel=1e-5)
    assert record.train_accuracy == right / 64


def test_the_recorded_rate_is_that_of_the_last_step() -> None:
    chosen = training(epochs="2ep", warmup="8it", lr=0.08)
    assert [epoch.lr for epoch in train(chosen, 0, start_of(chosen)).epochs] == pytest.approx([0.04, 0.08])


def test_the_early_stop_rule_of_the_training_decides() -> None:
    chosen = training(early_stop="last", lr=0.3)
    result = train(chosen, 0, start_of(chosen))
    assert result.early_stop == "last"
    assert result.best is result.epochs[-1]


def test_s_cyc_follows_the_density_of_the_masks() -> None:
    chosen = training(rates="s_cyc", lr=0.01, lr_high=0.1, epochs="1ep")
    masks = half(chosen)
    result = train(chosen, 0, start_of(chosen), masks)
    assert result.epochs[0].lr == pytest.approx(0.01 + 0.09 / (1 + math.exp(-10 * (0.5 - masks.density))))


def test_a_loss_that_is_no_number_is_a_failure_with_its_step_and_the_last_good_state() -> None:
    chosen = training(lr=1e-3, epochs="4ep", momentum=0.0)
    start = start_of(chosen)
    good = train(chosen, 0, start, last=2)
    exploding = chosen.model_copy(update={"drops": (chosen.epochs.read("9it"),), "drop_factor": 1e38})
    result = train(exploding, 0, start)
    assert result.failure is not None
    assert result.failure.epoch == 2
    assert 9 < result.failure.step < 12  # the tenth update is too large; the loss shows it in the next step
    assert result.failure.lr == pytest.approx(1e35)
    assert not math.isfinite(result.failure.loss)
    assert same(result.state, good.state)
    assert result.epochs == good.epochs
    with pytest.raises(ap.InputError, match=r"failed training has no accuracy: loss .+ at step 1\d"):
        _ = result.accuracy


def test_weights_that_are_no_numbers_at_the_end_are_a_failure_too() -> None:
    chosen = training(epochs="1it", lr=1e38, momentum=0.0, weight_decay=1e10)
    start = start_of(chosen)
    result = train(chosen, 0, start)
    assert result.failure is not None
    assert (result.failure.step, result.epochs) == (0, ())
    assert same(result.state, start)


def epoch(number: int, accuracy: float, loss: float, test: float) -> Epoch:
    return Epoch(number, number, 0.1, 1.0, 0.5, loss, accuracy, test)


def test_the_early_stop_epoch_is_the_earliest_of_the_best() -> None:
    epochs = (epoch(0, 0.5, 0.9, 0.1), epoch(1, 0.8, 0.7, 0.2), epoch(2, 0.8, 0.6, 0.9), epoch(3, 0.7, 0.6, 0.3))
    assert Result({}, epochs).accuracy == 0.2
    assert best_epoch(epochs, "best_validation_loss").epoch == 2
    assert best_epoch(epochs, "last").epoch == 3
    assert Result({}, epochs, "last").accuracy == 0.3


def test_bf16_keeps_weights_and_statistics_in_float32() -> None:
    chosen = training(precision="bf16")
    start = start_of(chosen)
    result = train(chosen, 0, start)
    assert all(tensor.dtype == start[name].dtype for name, tensor in result.state.items())
    full = train(training(), 0, start)
    assert not same(result.state, full.state)
    for name, tensor in full.state.items():
        torch.testing.assert_close(result.state[name], tensor, rtol=0.1, atol=0.02)


def test_dropout_is_drawn_from_the_seed_and_the_step() -> None:
    chosen = training(network={"name": "tests.training.makers:small", "dropout": 0.5}, epochs="1ep")
    start = start_of(chosen)
    assert same(train(chosen, 1, start).state, train(chosen, 1, start).state)
    assert not same(train(chosen, 1, start).state, train(training(epochs="1ep"), 1, start).state)


def test_dropout_is_another_in_every_epoch() -> None:
    """With a rate of next to nothing, the loss of two epochs in the same order differs by dropout alone."""
    network = {"name": "tests.training.makers:small", "dropout": 0.5}
    chosen = training(network=network, epochs="2ep", lr=1e-30, momentum=0.0)

    class Repeating(InMemory):
        def _epoch(self, epoch: int):
            return super()._epoch(0)

    own = chosen.feed(1)
    own.__class__ = Repeating
    first, second = train(chosen, 1, start_of(chosen), feed=own).epochs
    assert first.train_loss != pytest.approx(second.train_loss, rel=1e-4)


def test_a_feed_of_another_training_is_refused() -> None:
    chosen = training()
    for feed, message in (
        (chosen.feed(7), "the feed's seed is 7, and the training's 0"),
        (training(batch=8).feed(0), "the feed's batch is 8, and the training's 16"),
        (training(augment="crop").feed(0), "the feed's augment is crop, and the training's none"),
    ):
        with pytest.raises(ap.InputError, match=message):
            train(chosen, 0, start_of(chosen), feed=feed)


def stopped_after(chosen: Training, epochs: int, seed: int = 0, masks: ap.Masks | None = None) -> Checkpoint:
    found = train(chosen, seed, start_of(chosen), masks, last=epochs).checkpoint
    assert found is not None
    return found


def test_a_training_that_stopped_early_can_go_on() -> None:
    whole = train(FULL, 3, start_of(FULL))
    assert whole.checkpoint is None
    assert same_result(whole, train(FULL, 3, start_of(FULL), resume=stopped_after(FULL, 2, seed=3)))


def test_a_checkpoint_of_another_training_is_refused() -> None:
    chosen = training()
    kept = stopped_after(chosen, 2)
    start = start_of(chosen)
    for other, seed, keywords in (
        (chosen, 1, {}),
        (chosen, 0, {"masks": half(chosen)}),
        (chosen, 0, {"first": 1}),
        (training(lr=0.06), 0, {}),
        (training(optimizer="adam"), 0, {}),
    ):
        with pytest.raises(ap.InputError, match="the checkpoint is of another training"):
            train(other, seed, start, resume=kept, **keywords)
    with pytest.raises(ap.InputError, match="a checkpoint after epoch 2 of a training from 0 to 1"):
        train(chosen, 0, start, resume=kept, last=1)


def test_no_surrounding_context_keeps_it_from_learning() -> None:
    chosen = training(epochs="1ep")
    start = start_of(chosen)
    plain = train(chosen, 0, start)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert same(train(chosen, 0, start).state, plain.state)


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
        train(chosen, 0, start_of(chosen))


def test_an_evaluation_that_is_no_number_is_a_failure() -> None:
    chosen = training(network="tests.training.makers:blind", epochs="1ep")
    result = train(chosen, 0, start_of(chosen))
    assert result.failure is not None
    assert result.failure.step == 3
    assert math.isnan(result.failure.loss)


def test_a_start_of_another_network_is_refused() -> None:
    chosen = training()
    start = start_of(chosen)
    with pytest.raises(ap.InputError, match=r"not one of this .*: it differs in '5\.weight'"):
        train(chosen, 0, {**start, "5.weight": torch.zeros(2, 7)})
    with pytest.raises(ap.InputError, match=r"it differs in '0\.weight'"):
        train(chosen, 0, {name: tensor for name, tensor in start.items() if name != "0.weight"})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"first": 3}, "epochs 3 to 3: this training has epochs 0 to 3"),
        ({"last": 4}, "epochs 0 to 4"),
        ({"first": -1}, "epochs -1 to 3"),
        ({"first": 1.5}, "first = 1.5: a whole number is needed"),
        ({"last": True}, "last = True"),
        ({"device": "abacus"}, "device 'abacus' cannot be used here"),
    ],
)
def test_epochs_that_the_training_does_not_have(keywords: dict, message: str) -> None:
    chosen = training()
    with pytest.raises(ap.InputError, match=message):
        train(chosen, 0, start_of(chosen), **keywords)


def test_a_batch_larger_than_the_data_is_refused_before_anything_runs() -> None:
    chosen = training(batch=100)
    with pytest.raises(ap.InputError, match="batch = 100 of 72 training images"):
        train(chosen, 0, start_of(chosen))


def test_it_learns_handwritten_digits() -> None:
    chosen = Training(network="resnet8", data="digits", optimizer="adam", lr=0.01, epochs="6ep", batch=64)
    result = train(chosen, 0, chosen.build(10, channels=1).state_dict())
    assert result.accuracy > 0.9
