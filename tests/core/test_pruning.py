"""One cycle, exactly: laws of X and AP together, over many cycles."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

import activeprune as ap
from tests.helpers import (
    SmallNet,
    algorithm_1,
    holder,
    journeys,
    layers,
    positions,
    random_masks,
    same_state,
    slow_lowest,
    snapshot,
)

# -- X alone


@given(layers(), st.data())
def test_exactly_count_fewer_the_lowest_ones_and_the_old_masks_untouched(drawn: tuple, data: st.DataObject) -> None:
    scores, masks = drawn
    count = data.draw(st.integers(0, masks.alive))
    before = positions(masks)
    after = ap.prune_lowest(masks, scores, count)
    assert positions(masks) == before
    assert before - positions(after) == slow_lowest(scores, masks, count)
    assert positions(after) <= before
    assert after.alive == masks.alive - count


@given(layers(), st.data())
def test_two_prunings_are_one_of_the_sum(drawn: tuple, data: st.DataObject) -> None:
    scores, masks = drawn
    first = data.draw(st.integers(0, masks.alive))
    second = data.draw(st.integers(0, masks.alive - first))
    assert ap.prune_lowest(ap.prune_lowest(masks, scores, first), scores, second) == ap.prune_lowest(
        masks, scores, first + second
    )


@given(layers(), st.data())
def test_scores_may_come_in_any_order_and_at_pruned_positions_be_anything(drawn: tuple, data: st.DataObject) -> None:
    scores, masks = drawn
    count = data.draw(st.integers(0, masks.alive))
    shuffled = {name: scores[name].clone() for name in data.draw(st.permutations(list(scores)))}
    for name, mask in masks.items():
        shuffled[name][~mask] = torch.nan
    assert ap.prune_lowest(masks, shuffled, count) == ap.prune_lowest(masks, scores, count)


@given(layers(), st.data())
def test_only_the_order_of_scores_matters(drawn: tuple, data: st.DataObject) -> None:
    scores, masks = drawn
    count = data.draw(st.integers(0, masks.alive))
    stretched = {name: score.double() * 3 + 10 for name, score in scores.items()}
    assert ap.prune_lowest(masks, stretched, count) == ap.prune_lowest(masks, scores, count)


def test_global_magnitude_agrees_with_torch_where_there_are_no_ties() -> None:
    ours, theirs = SmallNet(), SmallNet()
    theirs.load_state_dict(ours.state_dict())
    masks = ap.Masks.dense(ours)
    for amount in (17, 60, 33):
        masks = ap.prune_cycle("global_magnitude", ours, masks, amount).masks
        layers_of_theirs = [(theirs.conv1, "weight"), (theirs.conv2, "weight"), (theirs.fc, "weight")]
        prune.global_unstructured(layers_of_theirs, prune.L1Unstructured, amount=amount)
        for name, mask in masks.items():
            module = theirs.get_submodule(name.removesuffix(".weight"))
            assert torch.equal(mask, module.weight_mask.bool())


# -- the same fraction of every layer


@given(layers(), st.data())
def test_scope_layer_takes_the_lowest_of_each_layer(drawn: tuple, data: st.DataObject) -> None:
    scores, masks = drawn
    count = data.draw(st.integers(0, masks.alive))
    after = ap.prune_lowest(masks, scores, count, scope="layer")
    assert after.alive == masks.alive - count
    for name, mask in masks.items():
        gone = int(mask.sum() - after[name].sum())
        assert abs(gone - count * int(mask.sum()) / masks.alive) < 1
        assert positions({name: mask & ~after[name]}) == slow_lowest(scores, {name: mask}, gone)


def test_layer_magnitude_keeps_the_same_fraction_everywhere() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 20), nn.Linear(20, 5))
    model[1].weight.data *= 100  # a global comparison would spare this layer
    masks = ap.prune_cycle("layer_magnitude", model, ap.Masks.dense(model), 80).masks
    assert [int(mask.sum()) for mask in masks.values()] == [80, 160, 80]


def test_the_methods_own_scope_is_used_unless_another_is_given() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
    model[1].weight.data *= 100
    masks = ap.Masks.dense(model)
    for method, scope, expected in [
        ("layer_magnitude", None, [80, 80]),
        ("layer_magnitude", "global", [60, 100]),
        ("global_magnitude", None, [60, 100]),
        ("global_magnitude", "layer", [80, 80]),
    ]:
        after = ap.prune_cycle(method, model, masks, 40, scope=scope).masks
        assert [int(mask.sum()) for mask in after.values()] == expected


# -- X and AP together


RATES = [(0.5, 0.25), (0.3, 0.3), (0.2, 0.02), (1.0, 0.5), (0.6, 0.0)]


@given(journeys(), st.sampled_from(RATES), st.sampled_from(["global", "layer"]))
def test_x_goes_first_ap_second_and_x_fills_what_ap_cannot_find(
    journey: tuple, rates: tuple[float, float], scope: str
) -> None:
    masks, trained, start, _ = journey
    model = holder(trained)
    assume(rates[0] * masks.alive >= 0.5)
    n_x, n_ap = ap.Budget(*rates).split(masks.alive)
    pruned = ap.prune_cycle("global_magnitude", model, masks, n_x, n_ap, start, scope=scope)
    scores = {name: weight.abs() for name, weight in trained.items()}
    after_x = ap.prune_lowest(masks, scores, n_x, scope)
    by_ap = algorithm_1(after_x, trained, start, n_ap)
    chosen = {n: torch.tensor([(n, i) in by_ap for i in range(m.numel())]).view_as(m) for n, m in masks.items()}
    after_ap = after_x.without(chosen)
    shortfall = n_ap - len(by_ap)
    assert pruned.masks == ap.prune_lowest(after_ap, scores, shortfall, scope)
    assert (pruned.by_method, pruned.by_rule, pruned.shortfall) == (n_x + shortfall, len(by_ap), shortfall)
    assert masks.alive - pruned.masks.alive == n_x + n_ap


@given(journeys())
def test_solo_goes_on_with_the_least_moved_others_when_negative_weights_run_out(journey: tuple) -> None:
    masks, trained, start, count = journey
    pruned = ap.prune_solo(holder(trained), masks, count, start)
    negative = algorithm_1(masks, trained, start, count)
    movement = {name: (trained[name] - start[name]).abs() for name in masks}
    others = slow_lowest(movement, ap.activate(masks, trained, start, count), count - len(negative))
    assert positions(masks) - positions(pruned.masks) == negative | others
    assert (pruned.by_method, pruned.by_rule, pruned.shortfall) == (0, len(negative), len(others))


def test_what_ap_cannot_find_x_takes_by_its_scope() -> None:
    """No weight is negative: all of AP's four go to X, two of each layer, though all of b are larger than all of a."""
    trained = {"a.weight": torch.arange(1.0, 9.0), "b.weight": torch.arange(11.0, 19.0)}
    masks = ap.Masks({name: torch.ones(8, dtype=torch.bool) for name in trained})
    start = {name: weight + 1 for name, weight in trained.items()}
    for scope, gone in {"layer": [2, 2], "global": [4, 0]}.items():
        pruned = ap.prune_cycle("global_magnitude", holder(trained), masks, 0, 4, start, scope=scope)
        assert [8 - int(mask.sum()) for mask in pruned.masks.values()] == gone
        assert (pruned.by_method, pruned.by_rule, pruned.shortfall) == (4, 0, 4)


def test_the_literal_reading_gives_the_rest_to_x() -> None:
    trained = {"a.weight": torch.tensor([1.0, -2.0, 3.0, -4.0])}
    start = {"a.weight": torch.tensor([1.1, -2.2, 3.3, -4.4])}
    masks = ap.Masks({"a.weight": torch.ones(4, dtype=torch.bool)})
    pruned = ap.prune_cycle("global_magnitude", holder(trained), masks, 0, 2, start, rule="ap_first_q")
    assert pruned.masks["a.weight"].tolist() == [False, False, True, True]  # -2 by the rule, then 1 by magnitude
    assert (pruned.by_method, pruned.by_rule, pruned.shortfall) == (1, 1, 1)


def thirteen_cycles(variant: str, model: nn.Module, start: dict[str, Tensor]) -> list[int]:
    """The alive weights after each cycle; training is not needed to count."""
    masks = ap.Masks({name: torch.ones_like(weight, dtype=torch.bool) for name, weight in start.items()})
    alive = []
    for cycle in range(13):
        q = {"plain": 0.0, "ap_lite": 0.02 if cycle == 12 else 0.0}.get(variant, 0.02)
        n_x, n_ap = ap.Budget(0.2, q).split(masks.alive)
        if variant == "solo":
            masks = ap.prune_solo(model, masks, n_x + n_ap, start).masks
        else:
            method = "layer_magnitude" if variant == "layer" else "global_magnitude"
            masks = ap.prune_cycle(method, model, masks, n_x, n_ap, start).masks
        alive.append(masks.alive)
    return alive


def test_all_variants_have_the_same_density_after_each_of_13_cycles() -> None:
    sizes = {"stem.weight": 432, "stage1.weight": 13_824, "stage2.weight": 51_000, "stage3.weight": 205_000}
    weights = {name: torch.randn(size) for name, size in sizes.items()}
    start = {name: weight + 0.1 * torch.randn_like(weight) for name, weight in weights.items()}
    plain = thirteen_cycles("plain", holder(weights), start)
    for variant in ("ap_pro", "ap_lite", "solo", "layer"):
        assert thirteen_cycles(variant, holder(weights), start) == plain
    assert plain[-1] / sum(sizes.values()) == pytest.approx(0.8**13, abs=1e-5)


def test_a_cycle_changes_neither_the_model_nor_the_masks() -> None:
    model = SmallNet()
    masks, start = random_masks(model), snapshot(SmallNet())
    before, alive = snapshot(model), positions(masks)
    ap.prune_cycle("lamp", model, masks, 20, 5, start)
    ap.prune_solo(model, masks, 20, start)
    assert same_state(model, before)
    assert positions(masks) == alive
