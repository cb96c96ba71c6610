"""AP against a direct transcription of Algorithm 1, and its parts."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import activeprune as ap
from activeprune.core.activation import RULES, Journey, Rule
from activeprune.core.randomness import stable_seed
from tests.helpers import algorithm_1, holder, journeys, positions, slow_lowest


@given(journeys())
def test_ap_is_algorithm_1(journey: tuple) -> None:
    masks, trained, start, count = journey
    after = ap.activate(masks, trained, start, count)
    assert positions(masks) - positions(after) == algorithm_1(masks, trained, start, count)
    assert positions(after) <= positions(masks)


@given(journeys())
def test_the_other_reading_takes_the_negative_ones_among_the_first_q(journey: tuple) -> None:
    masks, trained, start, count = journey
    least = positions(masks) - positions(ap.activate(masks, trained, start, count, rule="least_moved"))
    literal = positions(masks) - positions(ap.activate(masks, trained, start, count, rule="ap_first_q"))
    assert len(least) == count
    assert literal == {(name, i) for name, i in least if trained[name].flatten()[i] < 0}


@given(journeys(), st.integers(0, 2**31))
def test_each_rule_chooses_as_many_as_it_can_from_what_it_may(journey: tuple, seed: int) -> None:
    masks, trained, start, count = journey
    negative = {(n, i) for n, i in positions(masks) if trained[n].flatten()[i] < 0}
    for rule, allowed in {
        "ap": negative,
        "negative": negative,
        "least_moved": positions(masks),
        "random": positions(masks),
    }.items():
        after = ap.activate(masks, trained, start, count, rule=rule, seed=seed)
        chosen = positions(masks) - positions(after)
        assert chosen <= allowed
        assert len(chosen) == min(count, len(allowed))
        assert after == ap.activate(masks, trained, start, count, rule=rule, seed=seed)


def test_the_rules_are_these_and_say_what_they_do() -> None:
    assert set(RULES) == {"ap", "ap_first_q", "least_moved", "negative", "random"}
    assert all(RULES[name].summary for name in RULES)
    assert {RULES[name].version for name in RULES} == {1}  # a result that is kept says of which version it is


def test_a_rule_of_ones_own_is_registered_under_its_name_and_version() -> None:
    def last_ones(journey: Journey, count: int) -> dict:
        """The last ones of the first layer."""
        first, mask = next(iter(journey.alive.items()))
        return {name: torch.zeros_like(alive) for name, alive in journey.alive.items()} | {
            first: torch.arange(mask.numel()).view_as(mask) >= mask.numel() - count
        }

    known, origin = dict(RULES._known), dict(RULES._origin)
    try:
        assert ap.activation_rule("last_ones", version=3)(last_ones) is last_ones
        assert ap.activation_rule("unversioned")(last_ones) is last_ones
        told = [(rule.name, rule.version, rule.summary) for rule in (RULES["last_ones"], RULES["unversioned"])]
        assert told == [("last_ones", 3, last_ones.__doc__), ("unversioned", 1, last_ones.__doc__)]
        masks = ap.Masks({"w": torch.ones(4, dtype=torch.bool)})
        state = {"w": torch.zeros(4)}
        assert ap.activate(masks, state, state, 1, rule="last_ones")["w"].tolist() == [True, True, True, False]
        with pytest.raises(ap.InputError, match=r"activation rule 'last_ones' is taken by .*last_ones: choose another"):
            ap.activation_rule("last_ones")(lambda journey, count: {})
    finally:
        RULES._known, RULES._origin = known, origin


def test_random_rules_follow_seed_and_cycle_and_are_not_the_random_method() -> None:
    masks = ap.Masks({"layer.weight": torch.ones(200, dtype=torch.bool)})
    trained = {"layer.weight": -torch.rand(200)}
    choices = [ap.activate(masks, trained, trained, 50, "random", seed, cycle) for seed in (1, 2) for cycle in (0, 1)]
    assert all(one != other for i, one in enumerate(choices) for other in choices[:i])
    assert ap.prune_cycle("random", holder(trained), masks, 50, seed=1).masks != choices[0]


@given(journeys(), st.integers(0, 2**31), st.integers(0, 20))
def test_random_rules_take_the_lowest_of_uniform_numbers_drawn_layer_by_layer(
    journey: tuple, seed: int, cycle: int
) -> None:
    masks, trained, start, count = journey
    draw = torch.Generator().manual_seed(stable_seed(seed, "rule", cycle))
    numbers = {name: torch.rand(mask.shape, generator=draw) for name, mask in masks.items()}
    negative = {name: mask & (trained[name] < 0) for name, mask in masks.items()}
    for rule, among in {"random": masks, "negative": negative}.items():
        after = ap.activate(masks, trained, start, count, rule, seed, cycle)
        assert positions(masks) - positions(after) == slow_lowest(numbers, among, count)


def test_without_a_seed_it_is_cycle_0_of_seed_0() -> None:
    masks = ap.Masks({"w": torch.ones(100, dtype=torch.bool)})
    state = {"w": torch.zeros(100)}
    assert ap.activate(masks, state, state, 50, "random") == ap.activate(masks, state, state, 50, "random", 0, 0)


@pytest.mark.parametrize("rule", ["ap", "ap_first_q", "least_moved"])
def test_a_movement_that_float32_cannot_hold_is_an_error_that_names_the_layer(rule: str) -> None:
    masks = ap.Masks({"a.weight": torch.tensor([True]), "b.weight": torch.tensor([True, True])})
    trained = {"a.weight": torch.tensor([-1.0]), "b.weight": torch.tensor([-1.0, -3e38])}
    start = {"a.weight": torch.tensor([1.0]), "b.weight": torch.tensor([1.0, 3e38])}
    with pytest.raises(ap.InputError, match=r"^movement of layer 'b.weight': 1 of them are NaN or infinite"):
        ap.activate(masks, trained, start, 1, rule)


def test_weights_whose_sum_is_too_large_for_float32_are_fine() -> None:
    masks = ap.Masks({"w": torch.tensor([True, True, True])})
    trained, start = {"w": torch.tensor([3e38, 3e38, -1.0])}, {"w": torch.tensor([3e38, 3e38, 1.0])}
    assert ap.activate(masks, trained, start, 1)["w"].tolist() == [True, True, False]


def test_movement_is_computed_in_float32_whatever_the_states_are() -> None:
    masks = ap.Masks({"w": torch.tensor([True, True])})
    # bfloat16: the movements are 257 and 256; its own arithmetic rounds the first to a tie, which index 0 would win
    trained, start = torch.tensor([-256.0, -1.0]).bfloat16(), torch.tensor([1.0, 255.0]).bfloat16()
    assert (trained - start).abs().tolist() == [256.0, 256.0]
    assert ap.activate(masks, {"w": trained}, {"w": start}, 1)["w"].tolist() == [True, False]
    # float64 states: movements of 1e-9 and 1e-10 from 1 are both 0 in float32, a tie that goes to the first
    wide = torch.tensor([-1.0, -1.0], dtype=torch.float64)
    moved = wide - torch.tensor([1e-9, 1e-10], dtype=torch.float64)
    assert ap.activate(masks, {"w": wide}, {"w": moved}, 1)["w"].tolist() == [False, True]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda alive: {}, "must return a bool tensor of shape"),
        (lambda alive: {n: m.float() for n, m in alive.items()}, "must return a bool tensor of shape"),
        (lambda alive: {n: torch.tensor([True]) for n in alive}, "must return a bool tensor of shape"),
        (lambda alive: {n: torch.ones_like(m) for n, m in alive.items()}, ".* that are pruned already"),
        (dict, "chose 3 weights, it may choose 1"),
    ],
)
def test_a_rule_of_ones_own_is_checked(returned: Callable, says: str) -> None:
    RULES._known["mine"] = Rule("mine", lambda journey, count: returned(journey.alive))
    try:
        masks = ap.Masks({"w": torch.tensor([True, True, True, False])})
        with pytest.raises(ap.InputError, match=f"activation rule 'mine' {says}"):
            ap.activate(masks, {"w": torch.zeros(4)}, {"w": torch.zeros(4)}, 1, rule="mine")
    finally:
        del RULES._known["mine"]


def test_states_of_compiled_and_data_parallel_models_are_understood() -> None:
    masks = ap.Masks({"a.weight": torch.tensor([True, True])})
    plain = {"a.weight": torch.tensor([-1.0, -2.0]), "a.bias": torch.zeros(1)}
    for prefix in ("_orig_mod.", "module.", "module._orig_mod."):
        wrapped = {prefix + name: tensor for name, tensor in plain.items()}
        assert ap.activate(masks, wrapped, plain, 1) == ap.activate(masks, plain, plain, 1)


def test_zero_is_not_negative() -> None:
    masks = ap.Masks({"w": torch.tensor([True, True, True])})
    trained = {"w": torch.tensor([0.0, -0.0, -1e-30])}
    assert ap.activate(masks, trained, {"w": torch.zeros(3)}, 3)["w"].tolist() == [True, True, False]


def test_bad_states_are_errors_that_say_which() -> None:
    masks = ap.Masks({"a.weight": torch.ones(3, dtype=torch.bool), "b.weight": torch.tensor([True, False])})
    good = {"a.weight": torch.zeros(3), "b.weight": torch.zeros(2), "b.bias": torch.zeros(2)}
    ap.activate(masks, good, good, 1)
    with pytest.raises(ap.InputError, match=r"trained state of another model: it has no 'b.weight'"):
        ap.activate(masks, {"a.weight": torch.zeros(3)}, good, 1)
    with pytest.raises(ap.InputError, match=r"start state of another model: 'b.weight' is \(4,\), its mask \(2,\)"):
        ap.activate(masks, good, good | {"b.weight": torch.zeros(4)}, 1)
    for bad in (torch.nan, torch.inf):
        for role in ("trained", "start"):
            states = {"trained": good, "start": good} | {role: good | {"b.weight": torch.tensor([bad, 0.0])}}
            with pytest.raises(ap.InputError, match=f"{role} weights of layer 'b.weight' are NaN or infinite"):
                ap.activate(masks, **states, count=1)
            harmless = states | {role: good | {"b.weight": torch.tensor([0.0, bad])}}  # at a pruned position
            ap.activate(masks, **harmless, count=1)
    with pytest.raises(ap.InputError, match="cannot prune 5 of 4 alive weights"):
        ap.activate(masks, good, good, 5)
    with pytest.raises(ap.InputError, match="cannot prune -1 of 4 alive weights"):
        ap.activate(masks, good, good, -1)
