"""The captured engine, as far as it goes without a GPU: its graphs are tapes of operations."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import activeprune as ap
from activeprune.data import Shelf
from activeprune.training import Case, Checkpoint, Epoch, Training, choosing
from activeprune.training.captured import Captured, CapturedLane
from activeprune.training.choosing import Engines
from activeprune.training.counts import BatchCounts
from activeprune.training.loop import train_together
from activeprune.training.pacing import Trial
from activeprune.training.unavailable import EngineUnavailable
from tests.gpu import makers as colourful
from tests.training.makers import DRAWS, by_itself, half, same, small, start_of, training
from tests.training.rounding import assert_as_near_to_float32_as_a_plain_loop
from tests.training.tape import Tape

CPU = torch.device("cpu")
FULL = training(augment="crop_flip", weight_decay=1e-3, warmup="2it", drops=["2ep"], epochs="10it")


class Twice(nn.Module):
    """A norm that is used twice, one that never is, one that reads its count if `momentum` is None, and one without."""

    def __init__(self, momentum: float | None = None) -> None:
        super().__init__()
        self.twice, self.never, self.mean = nn.BatchNorm2d(2), nn.BatchNorm2d(2), nn.BatchNorm2d(2, momentum=momentum)
        self.none = nn.BatchNorm2d(2, track_running_stats=False)
        self.head = nn.Linear(72, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.none(self.mean(self.twice(self.twice(x)))).flatten(1))


class Passing(nn.Sequential):
    """Counts its passes in eval mode, where it keeps no gradients."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        assert self.training == torch.is_grad_enabled()
        self.passes += not self.training
        output: Tensor = super().forward(x)
        return output


def passing(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Passing(*small(num_classes, in_channels))


def twice(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Twice(0.1)


def reading(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Twice()


class Here(Captured):
    """On a CPU."""

    def __init__(self, chosen: Training) -> None:
        self.told: list[str] = []
        super().__init__(chosen, Shelf(chosen.dataset(), CPU), torch.device("cuda"), self.told.append)
        self.device = CPU

    def _recorded(self, work):
        with Tape() as tape:
            super()._recorded(work)
        return tape


class Launching(Here):
    """Records steps alone."""

    def _record_evaluation(self, own, sums) -> None:
        pass


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What of torch.cuda a capture needs. A stream that has not joined, or an error, lets ending a capture fail."""
    state = SimpleNamespace(apart=set(), capturing=False, ended=0)

    class Stream:
        def __init__(self, device: object = None) -> None:
            pass

        def wait_stream(self, other: "Stream") -> None:
            if state.capturing:
                state.apart.add(self) if other is main else state.apart.discard(other)

    @contextmanager
    def graph(recorded: object, capture_error_mode: str) -> Iterator[None]:
        state.capturing = True
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, torch.cuda.OutOfMemoryError):
                raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904
            raise
        finally:
            state.capturing = False
            if state.apart:
                raise RuntimeError("unjoined work")
            state.ended += 1

    main = Stream()
    generator = SimpleNamespace(
        clone_state=object, graphsafe_set_state=lambda fresh: setattr(state, "generator", fresh)
    )
    for name, fake in {
        "Stream": Stream,
        "CUDAGraph": object,
        "graph": graph,
        "current_stream": lambda device: main,
        "stream": lambda stream: nullcontext(),
        "synchronize": lambda device: None,
        "default_generators": (generator,),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return state


def case(chosen: Training, seed: int, **more) -> Case:
    return Case(chosen.feed(seed), chosen.build(2, 2, seed).state_dict(), **more)


@pytest.mark.parametrize("network", ["makers:small", "test_captured:twice"])
def test_a_lane_is_trained_as_one_network_alone(network: str) -> None:
    """Everything in the state, the number of batches that each norm has seen among it."""
    chosen = FULL.model_copy(update={"network": training(network=f"tests.training.{network}").network})
    results = train_together(chosen, [case(chosen, 3), case(chosen, 4)], Here(chosen))
    for seed, result in zip((3, 4), results, strict=True):
        alone = by_itself(chosen, seed, chosen.build(2, 2, seed).state_dict())
        assert list(result.state) == list(alone.state)
        for name, tensor in alone.state.items():
            torch.testing.assert_close(result.state[name], tensor, rtol=1e-5, atol=1e-6)


def test_in_bf16_it_is_as_near_to_float32_as_a_plain_loop() -> None:
    assert_as_near_to_float32_as_a_plain_loop(Here)


def test_the_counts_of_batches_are_right_after_a_resume_and_in_the_next_pack() -> None:
    kept: list[Checkpoint] = []
    engine = Here(FULL)
    tell = lambda _, checkpoint: kept.append(checkpoint())  # noqa: E731
    train_together(FULL, [case(FULL, 3, after_epoch=tell)], engine)
    assert [int(checkpoint.state["1.num_batches_tracked"]) for checkpoint in kept] == [4, 8, 10]
    engine.clear()
    (again,) = train_together(FULL, [case(FULL, 3, resume=kept[1])], engine)
    assert int(again.state["1.num_batches_tracked"]) == 10
    assert same(again.state, kept[2].state)


def test_a_step_in_which_nothing_is_counted_leaves_the_counts_alone() -> None:
    model = Twice()
    names = [name for name in model.state_dict() if name.endswith("num_batches_tracked")]
    counts = BatchCounts(model)
    with counts.measured():
        model(torch.randn(4, 2, 6, 6))
    with counts.left_out():
        model(torch.randn(4, 2, 6, 6))
        assert [name for name in model.state_dict() if name in names] == ["mean.num_batches_tracked"]
    assert [int(model.state_dict()[name]) for name in names] == [2, 0, 2]  # twice, never, mean
    counts.add(10)
    assert [int(model.state_dict()[name]) for name in names] == [22, 0, 2]


@pytest.mark.parametrize("joined", [True, False])
def test_a_lack_of_memory_in_a_capture_comes_out(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    """Also where ending the broken capture raises another error."""
    engine = Here(FULL)
    own = [engine.lane(case(FULL, seed)) for seed in (0, 1, 2)]

    def too_much() -> None:
        if cuda.capturing:
            if not joined:
                cuda.apart.add("a stream of somebody else")
            raise torch.cuda.OutOfMemoryError("too much")

    monkeypatch.setattr(own[1], "one_step", too_much)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="too much"):
        engine.run(own, 1)
    assert cuda.ended == joined
    assert own[1].model.state_dict().keys() == start_of(FULL).keys()


def test_a_step_that_cannot_be_recorded_is_left_to_another_engine() -> None:
    """One that asks for the value of a tensor, say."""
    chosen = FULL.model_copy(update={"network": training(network="tests.training.test_captured:reading").network})
    says = r"reading cannot be recorded \(operation not permitted .* capturing\)$"
    with pytest.raises(EngineUnavailable, match=says):
        train_together(chosen, [case(chosen, 0)], Here(chosen))
    try:
        raise EngineUnavailable("of another engine, while which this one is tried")
    except EngineUnavailable:
        with pytest.raises(EngineUnavailable, match=says):
            train_together(chosen, [case(chosen, 0)], Here(chosen))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("network", ["vgg19", "densenet40", "mobilenetv2", "resnet50", "vit_b16"])
def test_the_papers_networks_are_trained_as_alone(network: str) -> None:
    """Pruned by half; the last two on small images. Their evaluations can be recorded, too."""
    small_ones = {"resolution": 32} if network in ("resnet50", "vit_b16") else {}
    chosen = colourful.training(network=network, epochs="2it", batch=4, lr=0.01, **small_ones)
    start, masks, engine = colourful.start_of(chosen), colourful.half(chosen), Here(chosen)
    (result,) = train_together(chosen, [Case(chosen.feed(0), start, masks)], engine)
    alone = by_itself(chosen, 0, start, masks)
    for name, tensor in alone.state.items():
        torch.testing.assert_close(result.state[name], tensor, rtol=1e-4, atol=1e-5)
    assert result.epochs[-1].validation_loss == pytest.approx(alone.epochs[-1].validation_loss, rel=1e-4)
    assert engine._evaluation_graph is not None


def test_how_many_go_together_is_measured_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is trained then is as it would be alone."""
    monkeypatch.setattr(choosing, "TRIAL_CAPTURED", Trial((1, 2, 3), steps=2, worth=0.0))
    told: list[str] = []
    engines, dataset = Engines(CPU, None, told.append), FULL.dataset()
    engines._fitting[FULL] = [Here]  # as on a GPU
    engines._new = lambda training, dataset, count, kind: kind(training)  # type: ignore[method-assign]
    assert engines.room(FULL, dataset, planned=9) == 3
    assert told[-1] == "tests.training.makers:small: 3 networks at once chosen by timing"
    assert [pace.memory for pace in engines.paces(FULL, dataset, planned=9).values()] == [0, 0, 0]  # of a GPU
    shared = engines.engine(FULL, dataset, 3)
    assert isinstance(shared, Here)
    for seed, result in zip((3, 4, 5), train_together(FULL, [case(FULL, s) for s in (3, 4, 5)], shared), strict=True):
        alone = by_itself(FULL, seed, start_of(FULL, seed))
        for name, tensor in alone.state.items():
            torch.testing.assert_close(result.state[name], tensor, rtol=1e-5, atol=1e-6)


class Viewing(nn.Sequential):
    """Reads its convolution's output in one memory format alone."""

    def forward(self, x: Tensor) -> Tensor:
        seen = self[2](self[1](self[0](x)))
        output: Tensor = self[-1](seen.view(len(seen), -1))
        return output


def viewing(num_classes: int = 2, in_channels: int = 2) -> nn.Module:
    return Viewing(*small(num_classes, in_channels))


def test_a_network_that_wants_another_memory_format_is_left_to_another_engine() -> None:
    chosen = training(network="tests.training.test_captured:viewing", precision="bf16", batch=15)
    with pytest.raises(EngineUnavailable, match="cannot be evaluated in a graph"):
        train_together(chosen, [case(chosen, 0)], Here(chosen))
    assert by_itself(chosen, 0, start_of(chosen)).failure is None


@pytest.mark.parametrize("draws", DRAWS)
def test_a_network_that_draws_on_the_cpu_is_left_to_another_engine(draws: str) -> None:
    """A graph would do what came of one draw in every step."""
    network = {"name": "tests.training.makers:skipping", "draws": draws}
    chosen = FULL.model_copy(update={"network": training(network=network).network})
    with pytest.raises(EngineUnavailable, match="draws random numbers in training"):
        train_together(chosen, [case(chosen, 0)], Here(chosen))


def epochs(engine: Captured, *cases: Case) -> list[tuple[Epoch, ...]]:
    return [result.epochs for result in train_together(engine.training, cases, engine)]


@pytest.mark.parametrize("network", ["makers:small", "test_captured:twice"])
def test_evaluations_are_recorded_and_give_what_launched_ones_do(network: str) -> None:
    """The first one is launched, and done again to see whether anything differs."""
    chosen = FULL.model_copy(update={"network": training(network=f"tests.training.{network}").network})
    cases = [case(chosen, 3), case(chosen, 4, masks=half(FULL) if "small" in network else None)]
    engine, launching = Here(chosen), Launching(chosen)
    found, wanted = (train_together(chosen, cases, one) for one in (engine, launching))
    for one, other in zip(found, wanted, strict=True):
        assert one.epochs == other.epochs
        assert same(one.state, other.state)
    assert engine._evaluation_graph.replays == len(found[0].epochs) * engine._lanes[0].evaluation.count
    assert launching._evaluation_graph is None
    assert engine.told == []


def test_a_network_that_changes_when_it_is_evaluated_is_launched() -> None:
    """A recording evaluates all lanes: also one in the middle of an epoch, which is asked later."""
    chosen = FULL.model_copy(update={"network": training(network="tests.training.test_captured:passing").network})
    kept: list[Checkpoint] = []
    (alone,) = train_together(
        chosen, [case(chosen, 3, after_epoch=lambda _, checkpoint: kept.append(checkpoint()))], Launching(chosen)
    )
    engine = Here(chosen)
    both = train_together(chosen, [case(chosen, 3, resume=kept[1]), case(chosen, 3)], engine)
    for result in both:
        assert same(result.state, alone.state)
        assert result.epochs == alone.epochs
    assert alone.state["passes"] == len(alone.epochs) * engine._lanes[0].evaluation.count
    assert engine._evaluation_graph is None
    assert engine.told == [
        f"the evaluation of {chosen.network.name} changes the network, so it is launched, the slower way"
    ]


def test_what_was_recorded_serves_the_next_trainings() -> None:
    """Of other seeds, with other validation images; a lane that has failed takes part, and nobody looks."""
    engine = Here(FULL)
    train_together(FULL, [case(FULL, 3), case(FULL, 4)], engine)
    graph = engine._evaluation_graph
    engine.clear()
    wild = Case(FULL.feed(6), {name: tensor * 1e30 for name, tensor in start_of(FULL, 6).items()})
    result, bad = train_together(FULL, [case(FULL, 5), wild], engine)
    assert engine._evaluation_graph is graph is not None
    assert bad.failure is not None
    for epoch, alone in zip(result.epochs, by_itself(FULL, 5, start_of(FULL, 5)).epochs, strict=True):
        assert epoch.validation_loss == pytest.approx(alone.validation_loss, rel=1e-5)
        assert (epoch.validation_accuracy, epoch.test_accuracy) == (alone.validation_accuracy, alone.test_accuracy)


@pytest.mark.parametrize("error", [RuntimeError("it waits\nfor ever"), torch.cuda.OutOfMemoryError("too much")])
def test_evaluations_that_cannot_be_recorded_are_launched(
    cuda: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    own = [case(FULL, seed) for seed in (3, 4)]
    wanted = epochs(Launching(FULL), *own)
    evaluate_batch = CapturedLane.evaluate_batch

    def failing(lane: CapturedLane) -> None:
        if cuda.capturing:
            raise error
        evaluate_batch(lane)

    monkeypatch.setattr(CapturedLane, "evaluate_batch", failing)
    engine = Here(FULL)
    assert epochs(engine, *own) == wanted
    why = str(error).splitlines()[0]
    name = FULL.network.name
    assert engine.told == [f"the evaluation of {name} cannot be recorded ({why}); it is launched, the slower way"]


@pytest.mark.parametrize("off", ["one lane of two", "a bit"])
def test_recorded_evaluations_that_give_other_numbers_are_not_used(off: str) -> None:
    class Off(Here):
        def _recorded(self, work):
            tape, lane = super()._recorded(work), self._lanes[0]
            if work is CapturedLane.evaluate_batch:
                again = lane.evaluate_batch if off == "one lane of two" else tape.replay

                def replay() -> None:
                    again()
                    lane.evaluation.sums[0, 0] = lane.evaluation.sums[0, 0].nextafter(torch.tensor(0.0).double())

                tape.replay = replay
            return tape

    own = [case(FULL, seed) for seed in (3, 4)]
    engine = Off(FULL)
    assert epochs(engine, *own) == epochs(Launching(FULL), *own)
    assert engine._evaluation_graph is None
    assert [line.partition(" gives ")[2] for line in engine.told] == [
        "other numbers when it is replayed; it is launched, the slower way"
    ]


def test_an_evaluation_before_the_first_step_is_not_recorded() -> None:
    """There may be more lanes later."""
    engine = Here(FULL)
    first = engine.score([engine.lane(case(FULL, 3))])
    assert engine._evaluation_graph is None
    both = engine.score([*engine._lanes, engine.lane(case(FULL, 4))])
    assert both[0] == first[0] != both[1]


def test_an_evaluation_that_gives_no_numbers_is_not_what_a_recording_is_held_against() -> None:
    """The next one may be."""
    chosen = FULL.model_copy(update={"network": training(network="tests.training.makers:blind").network})
    engine = Here(chosen)
    (result,) = train_together(chosen, [case(chosen, 3)], engine)
    assert result.failure is not None
    assert engine._evaluation_graph is None
    assert engine._may_record


def test_masks_of_another_network_are_refused() -> None:
    with pytest.raises(ap.InputError, match="masks of another model"):
        Here(FULL).lane(case(FULL, 0, masks=ap.Masks({"nowhere": torch.ones(3, dtype=torch.bool)})))
    masks = half(FULL)
    odd = ap.Masks({name: mask[:1] for name, mask in masks.items()})  # which would fit by broadcasting
    with pytest.raises(ap.InputError, match="masks of another model"):
        Here(FULL).lane(case(FULL, 0, masks=odd))
