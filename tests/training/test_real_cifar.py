"""The real CIFAR-10, through its official files, into a training."""

from pathlib import Path

import pytest

import activeprune as ap
from activeprune.training import Case, Training, train
from tests.data.real import official_cifar
from tests.helpers import pruned_are_zero


@pytest.mark.slow
def test_one_epoch_of_resnet20_on_2000_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVEPRUNE_CACHE", str(tmp_path / "cache"))
    folder = official_cifar("cifar10", tmp_path / "cifar10")
    training = Training(
        network="resnet20", data={"name": "cifar10", "path": folder, "limit": 2000}, augment="crop_flip",
        lr=0.03, momentum=0.9, weight_decay=1e-4, warmup="1ep", epochs="1ep", batch=32,
    )  # fmt: skip
    feed = training.feed(seed=0)
    assert (feed.steps, feed.channels, len(feed.classes)) == (56, 3, 10)  # 1,800 of 2,000; 200 choose the epoch
    model = training.build(10, channels=3, seed=0)
    masks = ap.prune_lowest(ap.Masks.dense(model), ap.score("global_magnitude", model, ap.Masks.dense(model)), 50_000)
    result = train(training, Case(training.feed(0), model.state_dict(), masks))
    assert result.failure is None
    assert [epoch.step for epoch in result.epochs] == [56]
    assert result.epochs[0].train_loss < 2.3026  # better than guessing among ten
    assert result.accuracy > 0.12  # of 2,000 images, three standard deviations above guessing
    model.load_state_dict(result.state)
    assert pruned_are_zero(model, masks)
