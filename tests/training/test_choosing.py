"""Which engine is chosen for what, as far as it can be told without a GPU."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from activeprune.data import Dataset, Files, Images
from activeprune.training import Training, choosing
from activeprune.training.captured import Captured
from activeprune.training.choosing import Engines, side_by_side
from activeprune.training.compiled import Compiled
from activeprune.training.engine import Eager
from activeprune.training.fused.lanes import Fused, fitting
from activeprune.training.pacing import Pace
from activeprune.training.unavailable import EngineUnavailable
from tests.gpu.makers import patches, training

CPU = torch.device("cpu")


def of_bf16(**changes) -> Training:
    return training(precision="bf16", **changes)


@pytest.mark.parametrize("network", ["resnet20", "resnet8", {"name": "resnet20", "shortcut": "pad"}])
def test_the_fused_kernels_are_for_residual_networks_of_small_images(network: object) -> None:
    assert fitting(of_bf16(network=network), patches()) is not None
    other = of_bf16(network=network, nesterov=True, label_smoothing=0.1, augment="none", batch=64)
    assert fitting(other, patches()) is not None


@pytest.mark.parametrize("network", ["vgg19", "mobilenetv2"])
def test_and_for_no_other_networks(network: str) -> None:
    assert fitting(of_bf16(network=network), patches()) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"precision": "fp32"}, "precision = fp32: the fused engine has bf16"),
        ({"optimizer": "adam"}, "optimizer = adam: the fused engine has sgd"),
        ({"clip": 1.0}, r"clip = 1\.0: the fused engine has none"),
        ({"resolution": 32}, "resolution = 32: the fused engine has none"),
        ({"batch": 100}, "batch = 100: the fused engine needs a multiple of 8"),
    ],
)
def test_what_they_cannot_do_is_said(changes: dict, why: str) -> None:
    with pytest.raises(EngineUnavailable, match=why):
        fitting(training(**{"precision": "bf16", **changes}), patches())


def test_images_of_another_size_are_not_for_them() -> None:
    small = Images(torch.zeros(20, 3, 8, 8, dtype=torch.uint8), torch.zeros(20, dtype=torch.int64))
    with pytest.raises(EngineUnavailable, match=r"images of .*: the fused engine takes 3x32x32"):
        fitting(of_bf16(), Dataset("small", ("a",), small, small))


def test_on_a_gpu_another_engine_is_expected_and_a_line_says_why() -> None:
    told: list[str] = []
    engines = Engines(torch.device("cuda"), tell=told.append)
    assert engines.kind(training(precision="fp32"), patches()) is Captured
    assert told == ["resnet20: precision = fp32: the fused engine has bf16; it is trained the slower way"]
    assert engines.kind(of_bf16(network="vgg19", epochs="5000it"), patches()) is Compiled
    assert engines.kind(of_bf16(network="vgg19", epochs="4999it"), patches()) is Captured
    assert len(told) == 1


def test_a_gpu_that_is_too_old_for_the_kernels_captures_and_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    told: list[str] = []
    assert Engines(torch.device("cuda"), tell=told.append).kind(of_bf16(), patches()) is Captured
    why = "compute capability 7.5: the fused kernels need 8.0"
    assert told == [f"resnet20: {why}; it is trained the slower way"]


def test_images_that_are_read_from_files_are_trained_on_by_the_plain_loop_and_a_line_says_so() -> None:
    told: list[str] = []
    engines = Engines(torch.device("cuda"), tell=told.append)
    files = Files(Path(), np.array([b"one.png"]), torch.zeros(1, dtype=torch.int64))
    assert engines.kind(of_bf16(), Dataset("files", ("a",), files, files)) is Eager
    assert told == ["resnet20: its images are read from files while it is trained; it is trained the slower way"]


def test_on_a_cpu_the_plain_loop_does_everything() -> None:
    told: list[str] = []
    for most, room in ((None, 1), (3, 3)):
        engines = Engines(CPU, most, told.append)
        assert engines.room(of_bf16(), patches(), 9) == room
        assert isinstance(engines.engine(of_bf16(), patches(), 2), Eager)
    assert told == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("kind", [Fused, Compiled, Captured])
def test_what_needs_a_gpu_says_so(kind: type) -> None:
    from activeprune.data import Shelf

    shelf = Shelf(patches(), CPU)
    arguments = (of_bf16(), shelf, CPU, 2) if kind is Fused else (of_bf16(), shelf, CPU)
    with pytest.raises(EngineUnavailable, match=r"needs? a"):
        kind(*arguments)


def test_an_engine_that_cannot_be_had_leaves_a_line_and_the_slower_one() -> None:
    told: list[str] = []
    engines = Engines(CPU, 2, told.append)
    engines._fitting[of_bf16()] = [Fused, Compiled, Captured]  # as if this were a GPU
    assert isinstance(engines.engine(of_bf16(), patches(), 2), Eager)
    assert [line.split(":")[0] for line in told] == ["resnet20", "resnet20"]  # two say the same
    assert all("it is trained the slower way" in line for line in told)


def test_an_engine_that_ran_out_of_memory_is_gone_before_the_next_one_is_made() -> None:
    """Also if what is left of the error holds it."""
    engines = Engines(CPU)
    broken = Eager(training(), CPU)
    broken.error = [broken]  # type: ignore[attr-defined]  # as a traceback would
    engines._kept = (training(), 2), broken  # type: ignore[assignment]
    known = weakref.ref(broken)
    del broken
    gc.disable()
    try:
        engines.engine(training(), patches(), 1)
        assert known() is None
    finally:
        gc.enable()


# ---- how many at once


def test_few_trainings_need_no_trial_and_kinds_that_fail_leave_one_at_a_time() -> None:
    told: list[str] = []
    engines = Engines(CPU, None, told.append)
    engines._fitting[of_bf16()] = [Fused, Compiled, Captured]  # as if this were a GPU
    assert {engines.room(of_bf16(), patches(), planned) for planned in range(5)} == {4}
    assert told == []
    assert engines.room(of_bf16(), patches(), planned=9) == 1
    assert engines._fitting[of_bf16()] == []
    assert told[0] == "resnet20: a few steps are timed first"
    assert [line.split(":")[0] for line in told[1:]] == ["resnet20", "resnet20"]  # two say the same
    assert all("it is trained the slower way" in line for line in told[1:])
    assert engines.paces(of_bf16(), patches(), planned=9) == {}


def test_trainings_that_are_alike_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a grid of learning rates, say. What another number of them is worth is known, too."""
    timed: list[int] = []

    def timing(make: object, count: int, *_: object) -> Pace:
        timed.append(count)
        return Pace(step=1.0, evaluation=0.5)

    monkeypatch.setattr(choosing, "timed", timing)
    told: list[str] = []
    engines = Engines(CPU, None, told.append)
    for number, (lr, planned) in enumerate([(0.1, 100), (0.2, 100), (0.3, 20)]):
        chosen = of_bf16(lr=lr, epochs=f"{number + 1}ep")
        engines._fitting[chosen] = [Captured]
        assert engines.room(chosen, patches(), planned) == 16
    assert timed == [1, 2, 4, 8, 16]
    assert told == [
        "resnet20: a few steps are timed first",
        "resnet20: 16 networks at once chosen by timing",
    ]
    assert engines.paces(chosen, patches(), planned=100) == dict.fromkeys(timed, Pace(1.0, 0.5))
    other = of_bf16(batch=64)
    engines._fitting[other] = [Captured]
    assert engines.room(other, patches(), planned=3) == 3
    assert timed[5:] == [1, 2, 3]


@pytest.mark.parametrize(("planned", "known"), [(100, [1, 6]), (2, [1, 2]), (1, [1])])
def test_a_number_that_was_chosen_is_timed_and_one_network_alone(
    monkeypatch: pytest.MonkeyPatch, planned: int, known: list[int]
) -> None:
    """A dry run asks: a network that others wait for may be alone."""
    monkeypatch.setattr(choosing, "timed", lambda make, count, *_: Pace(step=float(count)))
    engines = Engines(CPU, most=6)
    engines._fitting[of_bf16()] = [Fused]
    assert engines.room(of_bf16(), patches(), planned) == 6
    assert engines.paces(of_bf16(), patches(), planned) == {count: Pace(float(count)) for count in known}


@pytest.mark.parametrize(
    ("most", "fit", "known", "too_many"),
    [
        (6, 3, [1, 3], [6]),
        (6, 5, [1, 3], [6]),
        (6, 1, [1], [6, 3]),
        (6, 0, [], [1, 6, 3]),
        (None, 3, [1, 2], [4]),
        (None, 0, [], [4, 2, 1]),
    ],
)
def test_where_memory_does_not_hold_a_number_a_smaller_one_is_timed(
    monkeypatch: pytest.MonkeyPatch, most: int | None, fit: int, known: list[int], too_many: list[int]
) -> None:
    """As a run, which would halve its packs."""

    def timing(make: object, count: int, *_: object) -> Pace:
        if count > fit:
            raise torch.cuda.OutOfMemoryError("too much")
        return Pace(float(count))

    monkeypatch.setattr(choosing, "timed", timing)
    told: list[str] = []
    engines = Engines(CPU, most, told.append)
    engines._fitting[of_bf16()] = [Fused]
    assert [*engines.paces(of_bf16(), patches(), planned=100)] == known
    chosen = [] if most or not fit else ["resnet20: 2 networks at once chosen by timing"]
    assert told == [
        "resnet20: a few steps are timed first",
        *(f"resnet20: {side_by_side(number)} could not be timed (OutOfMemoryError: too much)" for number in too_many),
        *chosen,
    ]


def test_errors_in_a_trial_leave_one_network_at_a_time_and_its_training_to_tell_of_them() -> None:
    chosen = of_bf16(network={"name": "tests.training.test_choosing:failing"})
    told: list[str] = []
    engines = Engines(CPU, None, told.append)
    engines._fitting[chosen] = [Plain]
    assert engines.room(chosen, patches(), planned=100) == 1
    assert engines._fitting[chosen] == [Plain]
    name = chosen.network.name
    assert told == [
        f"{name}: a few steps are timed first",
        f"{name}: {side_by_side(1)} could not be timed (ValueError: no)",
    ]


@pytest.mark.parametrize("fits", [True, False])
def test_what_was_timed_leaves_its_memory_to_others(monkeypatch: pytest.MonkeyPatch, fits: bool) -> None:
    made: list[weakref.ref] = []

    def timing(make: Callable[[], Plain], *_: object) -> Pace:
        engine = make()
        engine.itself = engine  # type: ignore[attr-defined]  # as errors hold on to what they went through
        made.append(weakref.ref(engine))
        if not fits:
            raise torch.cuda.OutOfMemoryError("too much")
        return Pace(1.0)

    monkeypatch.setattr(choosing, "timed", timing)
    monkeypatch.setattr(choosing, "TRIAL_CAPTURED", choosing.Trial((1, 2), steps=1, worth=3.0))
    engines = Engines(CPU)
    engines._fitting[of_bf16()] = [Plain]
    gc.disable()
    try:
        assert engines.room(of_bf16(), patches(), planned=100) == 1
        assert made
        assert all(engine() is None for engine in made)
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [EngineUnavailable("not here"), KeyboardInterrupt()])
def test_a_trial_ends_where_another_engine_or_the_user_must_know(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def timing(*_: object) -> Pace:
        raise error

    monkeypatch.setattr(choosing, "timed", timing)
    engines = Engines(CPU)
    engines._fitting[of_bf16()] = [Plain]
    if isinstance(error, EngineUnavailable):
        assert engines.room(of_bf16(), patches(), planned=100) == 1
        assert engines._fitting[of_bf16()] == []
    else:
        with pytest.raises(KeyboardInterrupt):
            engines.room(of_bf16(), patches(), planned=100)


def failing(num_classes: int = 10, in_channels: int = 3) -> nn.Module:
    """Can be evaluated, but not trained."""

    class Failing(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise ValueError("no")
            output: Tensor = super().forward(x)
            return output

    return Failing(nn.Flatten(), nn.Linear(in_channels * 1024, num_classes))


class Plain(Eager):
    """The plain loop in the place of an engine for several."""

    def __init__(self, training: Training, shelf: object, device: torch.device, tell: object) -> None:
        super().__init__(training, device)


def test_the_memory_of_others_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may have more than one process."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (50, 140))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 30)
    assert choosing._memory(torch.device("cuda")) == 80
