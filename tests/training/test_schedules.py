"""Learning rates, by hand."""

import math

import pytest
import torch

from activeprune.training import learning_rates
from tests.training.makers import training


def rates(steps: int = 10, density: float = 1.0, **keys) -> list[float]:
    return learning_rates(training(**{"lr": 0.3, **keys}), steps, density).tolist()


def test_the_papers_first_table() -> None:
    """Warm-up to 0.03 until epoch 55, then a tenth at 55 and at 70, of 100 epochs with 351 steps."""
    found = rates(351, lr=0.03, warmup="55ep", drops=["55ep", "70ep"], epochs="100ep")
    assert len(found) == 35_100
    assert found[0] == pytest.approx(0.03 / (55 * 351))
    assert found[55 * 351 - 1] == pytest.approx(0.03)
    assert found[55 * 351] == pytest.approx(0.003) == pytest.approx(found[70 * 351 - 1])
    assert found[70 * 351] == pytest.approx(0.0003) == pytest.approx(found[-1])


def test_a_warm_up_rises_by_equal_steps_and_never_starts_at_nothing() -> None:
    assert rates(warmup="4it", epochs="6it") == pytest.approx([0.075, 0.15, 0.225, 0.3, 0.3, 0.3])


def test_a_training_shorter_than_its_warm_up_and_drops() -> None:
    assert rates(warmup="2ep", drops=["2ep", "3ep"], epochs="1ep", steps=2) == pytest.approx([0.075, 0.15])


def test_epochs_and_iterations_mix() -> None:
    assert rates(steps=2, drops=["3it"], epochs="2ep", drop_factor=0.5) == pytest.approx([0.3, 0.3, 0.3, 0.15])


def test_cosine_falls_from_the_full_rate_to_nothing() -> None:
    found = rates(schedule="cosine", epochs="8it", warmup="2it")
    assert found[:3] == pytest.approx([0.15, 0.3, 0.3])
    assert found[2:] == pytest.approx([0.15 * (1 + math.cos(math.pi * i / 6)) for i in range(6)])


def test_fine_tuning_keeps_the_last_rate() -> None:
    assert rates(rates="finetune", warmup="2it", drops=["3it", "5it"], epochs="6it") == pytest.approx([0.003] * 6)


@pytest.mark.parametrize("density", [1.0, 0.8, 0.5, 0.1, 0.0])
def test_s_cyc_warms_up_higher_the_more_is_pruned(density: float) -> None:
    high = 0.3 + 0.4 / (1 + math.exp(-10 * ((1 - density) - 0.5)))
    found = rates(rates="s_cyc", lr_high=0.7, warmup="2it", drops=["3it"], epochs="4it", density=density)
    assert found == pytest.approx([high / 2, high, high, high / 10])


def test_rates_do_not_depend_on_how_the_same_length_is_written() -> None:
    one, two = (learning_rates(training(warmup=w, epochs=e), 7) for w, e in (("2ep", "3ep"), ("14it", "21it")))
    assert torch.equal(one, two)
