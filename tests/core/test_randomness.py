"""Random choices depend on seed, purpose and index, on nothing else, for ever."""

import random

import numpy as np
import pytest
import torch

import activeprune as ap
from activeprune.core.randomness import everybodys_kept, everybodys_states, generator, seed_pythons, stable_seed


def test_recorded_seeds_never_change() -> None:
    """A changed value here would orphan every result that was ever stored."""
    assert stable_seed(0, "method", 0) == 136735996754676067
    assert stable_seed(0, "method", 1) == 5129524039197467062
    assert stable_seed(1, "data", 99) == 5897263957663456804


def test_seed_purpose_and_index_all_matter() -> None:
    seeds = {stable_seed(s, p, i) for s in range(20) for p in ("init", "data", "split") for i in range(20)}
    assert len(seeds) == 20 * 3 * 20
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_generator_is_on_the_cpu_and_starts_from_its_seed() -> None:
    drawn = generator(3, "rule", 2)
    assert drawn.device.type == "cpu"
    assert drawn.initial_seed() == stable_seed(3, "rule", 2)


@pytest.mark.parametrize(("seed", "index"), [(1.0, 0), (0, "1"), (None, 0)])
def test_what_is_no_whole_number_is_no_seed(seed: object, index: object) -> None:
    with pytest.raises(ap.InputError, match=f"seed and index must be whole numbers, not {seed!r} and {index!r}"):
        stable_seed(seed, "method", index)


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def test_generators_that_are_everybodys_go_on_from_where_they_were() -> None:
    cpu = torch.device("cpu")
    before = everybodys_states(cpu)
    with everybodys_kept():
        seed_pythons(stable_seed(0, "step", 0))
        assert everybodys_states(cpu) != before
        first = drawn()
        seed_pythons(stable_seed(0, "step", 0))
        assert drawn()[:2] == first[:2]
    assert everybodys_states(cpu) == before


@pytest.mark.parametrize("draw", [random.random, lambda: np.random.rand(), lambda: torch.rand(())])  # noqa: NPY002
def test_whoever_draws_is_seen(draw) -> None:
    before = everybodys_states(torch.device("cpu"))
    assert everybodys_states(torch.device("cpu")) == before
    draw()
    assert everybodys_states(torch.device("cpu")) != before
