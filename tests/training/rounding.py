"""An engine in bf16 computes what a plain loop does, but for rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from activeprune.training import Training
from activeprune.training.case import Case
from activeprune.training.engine import Engine
from activeprune.training.loop import train_together
from tests.gpu.makers import half, start_of, training
from tests.helpers import pruned_are_zero
from tests.training.makers import by_itself

SETTINGS = {
    "network": "resnet8", "data": "tests.training.fused.test_studies:few_patches", "batch": 8, "epochs": "2ep",
    "augment": "crop_flip", "lr": 0.02, "warmup": "2it", "drops": ["6it"], "weight_decay": 0.01, "label_smoothing": 0.1,
}  # fmt: skip
CHOSEN, EXACT = (training(precision=precision, **SETTINGS) for precision in ("bf16", "fp32"))


def assert_as_near_to_float32_as_a_plain_loop(engine: Callable[[Training], Engine]) -> None:
    """Two networks, one of them pruned by half: the same images, crops, rates and evaluations."""
    seeds = [(0, None), (1, half(CHOSEN))]
    cases = [Case(CHOSEN.feed(seed), start_of(CHOSEN, seed), masks) for seed, masks in seeds]
    together = train_together(CHOSEN, cases, engine(CHOSEN))
    for (seed, masks), packed in zip(seeds, together, strict=True):
        start = start_of(CHOSEN, seed)
        exact, plain = (by_itself(of, seed, start, masks) for of in (EXACT, CHOSEN))
        for kind in ("weight", "bias", "running_mean", "running_var"):
            states = (start, exact.state), (packed.state, exact.state), (plain.state, exact.state)
            moved, off, rounding = (apart(kind, one, other) for one, other in states)
            assert off < 1.3 * rounding < 0.1 * moved
        for epoch, other in zip(packed.epochs, exact.epochs, strict=True):
            assert (epoch.epoch, epoch.step, epoch.lr) == (other.epoch, other.step, other.lr)
            assert epoch.train_loss == pytest.approx(other.train_loss, rel=2e-3)
            assert epoch.validation_loss == pytest.approx(other.validation_loss, rel=5e-3)
            for images, accuracy in ((32, "train_accuracy"), (4, "validation_accuracy"), (20, "test_accuracy")):
                assert getattr(epoch, accuracy) == pytest.approx(getattr(other, accuracy), abs=1.1 / images)
    model = CHOSEN.build(10, 3)
    model.load_state_dict(together[1].state)
    assert pruned_are_zero(model, seeds[1][1])


def apart(kind: str, one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Of all tensors of a kind."""
    return sum(float((one[name] - other[name]).square().sum()) for name in one if name.endswith(kind)) ** 0.5
