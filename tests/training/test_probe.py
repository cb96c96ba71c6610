"""Dead neurons during a training: what is seen is what is there, and the training is as it would be without."""

import pytest
import torch

import activeprune as ap
from activeprune.neurons.again import RepeatedCounter
from activeprune.training import Case, Checkpoint, Span, Training
from activeprune.training.case import WHOLE
from activeprune.training.duration import Duration
from activeprune.training.engine import Eager
from activeprune.training.loop import train_together
from activeprune.training.probe import Probe
from activeprune.training.result import ForeignCheckpoint
from tests.training.makers import half, same, start_of, training

CPU = torch.device("cpu")
CHOSEN = training(epochs="4ep", augment="crop_flip")
STEPS = CHOSEN.feed(0).steps


def probe_of(every: str, chosen: Training = CHOSEN, seed: int = 0, masks: ap.Masks | None = None) -> Probe:
    feed = chosen.feed(seed)
    network = RepeatedCounter(chosen.build(len(feed.classes), feed.channels))
    return Probe(Duration.read(every), network, masks, [x for x, _ in feed.unaugmented(20)])


def together(cases: list[Case], chosen: Training = CHOSEN, span: Span = WHOLE):
    return train_together(chosen, cases, Eager(chosen, CPU), span)


def case(seed: int = 0, **more) -> Case:
    return Case(CHOSEN.feed(seed), start_of(CHOSEN, seed), **more)


@pytest.mark.parametrize("every", ["1ep", "3ep", "1it", "5it", "100ep"])
def test_it_looks_at_the_start_and_then_every_so_often(every: str) -> None:
    (result,) = together([case(probe=probe_of(every))])
    stride = Duration.read(every).steps(STEPS)
    assert [seen["step"] for seen in result.probed] == list(range(0, 4 * STEPS + 1, stride))


def test_it_sees_what_is_there_and_changes_nothing() -> None:
    masks = half(CHOSEN)
    (plain,) = together([case(masks=masks)])
    (probed,) = together([case(masks=masks, probe=probe_of("1it", masks=masks))])
    assert same(plain.state, probed.state)
    assert plain.epochs == probed.epochs
    model = CHOSEN.build(len(CHOSEN.feed(0).classes), CHOSEN.feed(0).channels)
    images = [x for x, _ in CHOSEN.feed(0).unaugmented(20)]
    for state, seen in ((start_of(CHOSEN, 0), probed.probed[0]), (probed.state, probed.probed[-1])):
        model.load_state_dict(state)
        masks.apply_(model)
        found = ap.dead_neurons(model, masks, images)
        assert (seen["unit"]["static"], seen["unit"]["dynamic"]) == (found.unit.static, found.unit.dynamic)
        assert seen["channel"]["dynamic"] == found.channel.dynamic
        assert seen["unit"]["layers"] == {
            name: [layer.static, layer.dynamic] for name, layer in found.unit.layers.items()
        }


def test_trainings_side_by_side_look_when_it_is_their_turn() -> None:
    probes = [probe_of("1ep"), probe_of("3it", seed=1), None]
    results = together([case(seed, probe=probe) for seed, probe in enumerate(probes)])
    for seed, (probe, result) in enumerate(zip(probes, results, strict=True)):
        (alone,) = together([case(seed, probe=probe)])
        assert result.probed == alone.probed
        assert same(result.state, alone.state)
    assert results[2].probed == ()


def test_what_was_seen_outlasts_an_interruption(tmp_path) -> None:
    kept: list[Checkpoint] = []
    (whole,) = together([case(probe=probe_of("3it"), after_epoch=lambda _, at: kept.append(at()))])
    for checkpoint in kept:
        checkpoint.save(tmp_path / "checkpoint")
        (resumed,) = together([case(probe=probe_of("3it"), resume=Checkpoint.load(tmp_path / "checkpoint"))])
        assert resumed.probed == whole.probed


def test_a_checkpoint_without_what_was_seen_is_refused() -> None:
    kept: list[Checkpoint] = []
    together([case(after_epoch=lambda _, at: kept.append(at()))])
    with pytest.raises(ForeignCheckpoint, match="does not hold what a probe would have seen"):
        together([case(probe=probe_of("1ep"), resume=kept[1])])
    seen: list[Checkpoint] = []
    together([case(probe=probe_of("2ep"), after_epoch=lambda _, at: seen.append(at()))])
    with pytest.raises(ForeignCheckpoint):
        together([case(probe=probe_of("1ep"), resume=seen[1])])
    (unprobed,) = together([case(resume=seen[1])])
    assert unprobed.probed == ()


def test_a_training_that_starts_later_is_looked_at_from_there_on() -> None:
    (result,) = together([case(probe=probe_of("1ep"))], span=Span(2))
    assert [seen["step"] for seen in result.probed] == [2 * STEPS, 3 * STEPS, 4 * STEPS]


def test_one_that_fails_keeps_what_was_seen_before() -> None:
    wild = Case(CHOSEN.feed(0), {name: t * 1e30 for name, t in start_of(CHOSEN, 0).items()}, probe=probe_of("1ep"))
    (result,) = together([wild])
    assert result.failure is not None
    assert [seen["step"] for seen in result.probed] == [0]


def test_a_network_that_cannot_be_traced_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def trace(*arguments: object) -> None:
        tried.append(arguments)
        raise ap.InputError("torch.export cannot trace it")

    monkeypatch.setattr("activeprune.neurons.dead.trace", trace)
    (result,) = together([case(probe=probe_of("1ep"))])
    assert len(tried) == 1
    assert len(result.probed) == 5
    assert all(seen["unit"]["static"] == 0 for seen in result.probed)
