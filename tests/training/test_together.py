"""Several trainings side by side: each gets what it would get alone, to the bit."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from activeprune.core.randomness import torchs_own
from activeprune.training import Case, Checkpoint, Span
from activeprune.training.case import WHOLE
from activeprune.training.engine import Eager
from activeprune.training.loop import reproducible, train_together
from tests.training.makers import DRAWS, by_itself, half, same, same_result, start_of, training

FULL = training(
    augment="crop_flip", nesterov=True, weight_decay=1e-3, warmup="2it", drops=["2ep"], epochs="10it",
    network={"name": "tests.training.makers:small", "dropout": 0.3},
)  # fmt: skip
CPU = torch.device("cpu")
SECONDS = 60  # until a test that would wait for ever fails


def together(cases: list[Case], span: Span = WHOLE):
    return train_together(FULL, cases, Eager(FULL, CPU), span)


def case(seed: int, **more) -> Case:
    return Case(FULL.feed(seed), start_of(FULL), **more)


def test_each_gets_what_it_would_get_alone() -> None:
    masks = half(FULL)
    results = together([case(3), case(4, masks=masks), case(3, masks=masks)])
    alone = [
        by_itself(FULL, 3, start_of(FULL)),
        by_itself(FULL, 4, start_of(FULL), masks),
        by_itself(FULL, 3, start_of(FULL), masks),
    ]
    assert all(same_result(a, b) for a, b in zip(results, alone, strict=True))
    assert not same_result(results[0], results[2])


def test_those_that_resume_at_another_epoch_go_along() -> None:
    """Four steps an epoch and two in the last: the second lane is an epoch ahead, and is done before the others."""
    kept: list[Checkpoint] = []
    whole = by_itself(FULL, 4, start_of(FULL), after_epoch=lambda _, checkpoint: kept.append(checkpoint()))
    assert [epoch.step for epoch in whole.epochs] == [4, 8, 10]
    told: dict[int, list[int]] = {0: [], 1: []}
    results = together(
        [
            case(3, after_epoch=lambda record, _: told[0].append(record.epoch)),
            case(4, resume=kept[0], after_epoch=lambda record, _: told[1].append(record.epoch)),
            case(4, resume=kept[1]),
        ]
    )
    assert same_result(results[0], by_itself(FULL, 3, start_of(FULL)))
    assert all(same_result(result, whole) for result in results[1:])
    assert told == {0: [0, 1, 2], 1: [1, 2]}


def test_one_that_fails_leaves_and_the_others_go_on() -> None:
    wild = {name: tensor * 1e30 for name, tensor in start_of(FULL).items()}
    good, bad, other = together([case(3), replace(case(4), start=wild), case(5)])
    assert bad.failure is not None
    assert bad.epochs == ()
    assert same_result(good, by_itself(FULL, 3, start_of(FULL)))
    assert same_result(other, by_itself(FULL, 5, start_of(FULL)))


def test_one_that_is_done_already_waits_for_nobody() -> None:
    kept: list[Checkpoint] = []
    whole = by_itself(FULL, 4, start_of(FULL), after_epoch=lambda _, checkpoint: kept.append(checkpoint()))
    results = together([case(4, resume=kept[-1]), case(3)])
    assert same_result(results[0], whole)
    assert same_result(results[1], by_itself(FULL, 3, start_of(FULL)))


@pytest.mark.parametrize("draws", DRAWS)
def test_those_that_draw_from_the_same_generator_do_not_disturb_each_other(draws: str) -> None:
    chosen = training(network={"name": "tests.training.makers:skipping", "draws": draws})
    cases = [Case(chosen.feed(seed), start_of(chosen, seed)) for seed in (3, 4)]
    for seed, result in zip((3, 4), train_together(chosen, cases, Eager(chosen, CPU)), strict=True):
        assert same_result(result, by_itself(chosen, seed, start_of(chosen, seed)))


@pytest.mark.parametrize("last", [1, 2])
def test_first_epochs_leave_checkpoints_to_go_on_from(last: int) -> None:
    early = together([case(3), case(4)], Span(last=last))
    rest = together([case(3, resume=early[0].checkpoint), case(4, resume=early[1].checkpoint)])
    assert all(same_result(a, b) for a, b in zip(rest, together([case(3), case(4)]), strict=True))


def test_seconds_are_shared_out() -> None:
    results = together([case(3), case(4)])
    assert results[0].seconds == results[1].seconds > 0


def test_a_training_that_ends_leaves_alone_what_another_thread_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing, ending, drawn = threading.Event(), threading.Event(), []

    class Watched:
        def __enter__(self) -> None:
            if drawing.is_set():
                ending.set()
            torchs_own.acquire()

        def __exit__(self, *_) -> None:
            torchs_own.release()

    def draw() -> None:
        with torchs_own, torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            drawing.set()
            ending.wait(SECONDS)
            drawn.append(float(torch.rand(())))

    monkeypatch.setattr("activeprune.training.loop.torchs_own", Watched())

    thread = threading.Thread(target=draw)
    with reproducible(CPU):
        thread.start()
        drawing.wait()
    thread.join()
    assert drawn == [float(torch.rand((), generator=torch.Generator().manual_seed(5)))]


class GoingOn(Eager):
    """Lanes that have left go on computing, as branches of one graph do."""

    def run(self, lanes, steps: int) -> None:
        super().run(lanes, steps)
        for lane in getattr(self, "left", []):
            if lane not in lanes:
                lane.prepare(0, torch.full((steps,), 0.5))
                lane.begin()
                lane.run(steps)
        self.left = [*{*getattr(self, "left", []), *lanes}]


def test_the_checkpoint_of_one_that_is_done_early_is_that_of_its_own_end() -> None:
    kept: list[Checkpoint] = []
    by_itself(FULL, 4, start_of(FULL), after_epoch=lambda _, checkpoint: kept.append(checkpoint()))
    ahead, at_end = case(4, resume=kept[0]), case(4, resume=kept[1])
    results = train_together(FULL, [case(3), ahead, at_end], GoingOn(FULL, CPU), Span(last=2))
    for result in results[1:]:
        assert result.checkpoint is not None
        assert same(result.checkpoint.optimizer, kept[1].optimizer)
        assert same(result.checkpoint.state, kept[1].state)


def test_a_checkpoint_can_be_written_whatever_the_layout_in_memory(tmp_path: Path) -> None:
    wide = torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last)
    Checkpoint(1, {"w": wide}, {"w/momentum_buffer": wide}).save(tmp_path / "kept")
    assert torch.equal(Checkpoint.load(tmp_path / "kept").optimizer["w/momentum_buffer"], wide)


class Logged(Eager):
    """Writes down what its lanes are asked for."""

    def lane(self, case):
        lane = super().lane(case)
        for name in ("prepare", "begin", "end"):
            setattr(lane, name, self._noting(name, getattr(lane, name)))
        return lane

    def _noting(self, name: str, asked):
        def noted(*arguments):
            self.log.append((name, *arguments[:1]))
            return asked(*arguments)

        return noted


def test_an_epoch_is_prepared_before_anybody_waits_for_the_one_before() -> None:
    """Once each, and none that is not to come: the device computes meanwhile."""
    engine = Logged(FULL, CPU)
    engine.log = []
    (result,) = train_together(FULL, [case(3)], engine, Span(last=2))
    assert engine.log == [
        ("prepare", 0), ("begin",), ("prepare", 1), ("end",), ("begin",), ("end",),
    ]  # fmt: skip
    assert same_result(result, by_itself(FULL, 3, start_of(FULL), last=2))
