"""The epoch that is reported, and checkpoints from which a training goes on."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import activeprune as ap
from activeprune.files import leftovers
from activeprune.training import Checkpoint, Epoch, Result, Training
from activeprune.training.result import best_epoch
from tests.training.makers import FULL, by_itself, half, same_result, start_of, training


def epoch(number: int, accuracy: float, loss: float, test: float) -> Epoch:
    return Epoch(number, number, 0.1, 1.0, 0.5, loss, accuracy, test)


def test_the_early_stop_epoch_is_the_earliest_of_the_best() -> None:
    epochs = (epoch(0, 0.5, 0.9, 0.1), epoch(1, 0.8, 0.7, 0.2), epoch(2, 0.8, 0.6, 0.9), epoch(3, 0.7, 0.6, 0.3))
    assert Result({}, epochs).accuracy == 0.2
    assert best_epoch(epochs, "best_validation_loss").epoch == 2
    assert best_epoch(epochs, "last").epoch == 3
    assert Result({}, epochs, "last").accuracy == 0.3


# -- checkpoints


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_going_on_from_a_checkpoint_changes_nothing(optimizer: str, tmp_path: Path) -> None:
    chosen = FULL.model_copy(update={"optimizer": optimizer, "nesterov": False})
    start, masks = start_of(chosen), half(chosen)
    saved: list[Path] = []

    def keep(record: Epoch, checkpoint) -> None:
        saved.append(tmp_path / f"{record.epoch}.safetensors")
        checkpoint().save(saved[-1])

    whole = by_itself(chosen, 3, start, masks, after_epoch=keep)
    assert len(saved) == 3
    for path in saved:
        resumed = by_itself(chosen, 3, start, masks, resume=Checkpoint.load(path))
        assert same_result(whole, resumed)
        assert resumed.seconds > 0


def test_a_checkpoint_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        keep = lambda record, checkpoint, path=path: replace(checkpoint(), seconds=0.0).save(path)  # noqa: E731
        by_itself(FULL, 3, start_of(FULL), last=1, after_epoch=keep)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ap.InputError, match="broken is no checkpoint of a training"):
        Checkpoint.load(path)


def stopped_after(chosen: Training, epochs: int, seed: int = 0, masks: ap.Masks | None = None) -> Checkpoint:
    found = by_itself(chosen, seed, start_of(chosen), masks, last=epochs).checkpoint
    assert found is not None
    return found


def test_a_training_that_stopped_early_can_go_on() -> None:
    whole = by_itself(FULL, 3, start_of(FULL))
    assert whole.checkpoint is None
    assert same_result(whole, by_itself(FULL, 3, start_of(FULL), resume=stopped_after(FULL, 2, seed=3)))


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
            by_itself(other, seed, start, resume=kept, **keywords)
    with pytest.raises(ap.InputError, match="a checkpoint after epoch 2 of a training from 0 to 1"):
        by_itself(chosen, 0, start, resume=kept, last=1)


def test_what_is_left_of_a_checkpoint_whose_writer_is_killed_is_known_as_such(tmp_path: Path) -> None:
    """By the signal that comes with the first byte beyond a limit: in the middle of the file."""
    pytest.importorskip("resource")
    path = tmp_path / "one.safetensors"
    program = f"""
import resource, signal, torch
from activeprune.training import Checkpoint
checkpoint = Checkpoint(1, {{"weight": torch.zeros(1000)}}, {{}})
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
checkpoint.save({str(path)!r})
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGXFSZ
    (left,) = tmp_path.iterdir()
    assert list(leftovers(path)) == [left]
    assert left.stat().st_size == 1000
