"""What is recorded of every epoch, and when a training has failed."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

import activeprune as ap
from tests.training.makers import by_itself, same, start_of, training


def test_the_records_are_what_the_state_does() -> None:
    chosen = training()
    result = by_itself(chosen, 0, start_of(chosen))
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
    record = by_itself(chosen, 0, start).epochs[0]
    model = chosen.build(num_classes=2, channels=2).train()
    model.load_state_dict(start)
    batches = list(chosen.feed(0).training(0))
    losses = [cross_entropy(model(x), y, label_smoothing=0.2).item() for x, y in batches]
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in batches)
    assert record.train_loss == pytest.approx(sum(losses) / 4, rel=1e-5)
    assert record.train_accuracy == right / 64


def test_the_recorded_rate_is_that_of_the_last_step() -> None:
    chosen = training(epochs="2ep", warmup="8it", lr=0.08)
    assert [epoch.lr for epoch in by_itself(chosen, 0, start_of(chosen)).epochs] == pytest.approx([0.04, 0.08])


def test_the_early_stop_rule_of_the_training_decides() -> None:
    chosen = training(early_stop="last", lr=0.3)
    result = by_itself(chosen, 0, start_of(chosen))
    assert result.early_stop == "last"
    assert result.best is result.epochs[-1]


def test_a_loss_that_is_no_number_is_a_failure_with_its_step_and_the_last_good_state() -> None:
    chosen = training(lr=1e-3, epochs="4ep", momentum=0.0)
    start = start_of(chosen)
    good = by_itself(chosen, 0, start, last=2)
    exploding = chosen.model_copy(update={"drops": (chosen.epochs.read("9it"),), "drop_factor": 1e38})
    result = by_itself(exploding, 0, start)
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
    result = by_itself(chosen, 0, start)
    assert result.failure is not None
    assert (result.failure.step, result.epochs) == (0, ())
    assert same(result.state, start)


def test_an_evaluation_that_is_no_number_is_a_failure() -> None:
    chosen = training(network="tests.training.makers:blind", epochs="1ep")
    result = by_itself(chosen, 0, start_of(chosen))
    assert result.failure is not None
    assert result.failure.step == 3
    assert math.isnan(result.failure.loss)
