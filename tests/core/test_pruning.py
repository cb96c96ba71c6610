"""One cycle, exactly: laws of X and AP together, over many cycles."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

import activeprune as ap
from activeprune.core.budget import shared_out
from activeprune.core.evidence import Evidence
from activeprune.core.methods import METHODS, Method
from activeprune.core.randomness import stable_seed
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
    small_batches,
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


# -- the same fraction in every layer


@pytest.mark.parametrize(
    ("alive", "count", "expected"),
    [
        ([10, 10, 10], 6, [2, 2, 2]),
        ([10, 20, 30], 12, [2, 4, 6]),
        ([7, 7, 7], 7, [3, 2, 2]),  # 2⅓ each: the one left over goes to the first layer
        ([5, 3, 2], 4, [2, 1, 1]),  # 2.0, 1.2, 0.8: the largest remainder is the last layer's
        ([3, 3, 4], 5, [2, 1, 2]),  # 1.5, 1.5, 2.0: a tie, to the earlier layer
        ([1, 1, 98], 50, [1, 0, 49]),  # 0.5, 0.5, 49
        ([4, 0, 4], 3, [2, 0, 1]),  # an empty layer gives nothing
        ([2, 3], 5, [2, 3]),
        ([2, 3], 0, [0, 0]),
    ],
)
def test_layer_quotas_by_hand(alive: list[int], count: int, expected: list[int]) -> None:
    assert shared_out(count, alive) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.data())
def test_layer_quotas_add_up_and_are_the_exact_share_rounded(alive: list[int], data: st.DataObject) -> None:
    total = sum(alive)
    count = data.draw(st.integers(0, total))
    quotas = shared_out(count, alive)
    assert sum(quotas) == count
    assert all(0 <= quota <= a for quota, a in zip(quotas, alive, strict=True))
    assert all(abs(quota * total - count * a) < total for quota, a in zip(quotas, alive, strict=True) if total)


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


# -- mistakes


def test_counts_that_cannot_be_are_refused() -> None:
    model = SmallNet()
    masks = random_masks(model)
    scores = ap.score("global_magnitude", model, masks)
    for count in (masks.alive + 1, -1):
        says = f"cannot prune {count} of {masks.alive} alive weights"
        for prune_it in (
            lambda count: ap.prune_lowest(masks, scores, count),
            lambda count: ap.prune_cycle("global_magnitude", model, masks, count),
            lambda count: ap.prune_cycle("global_magnitude", model, masks, 0, count, snapshot(model)),
            lambda count: ap.prune_solo(model, masks, count, snapshot(model)),
        ):
            with pytest.raises(ap.InputError, match=says):
                prune_it(count)
    half = masks.alive // 2 + 1  # each of the two could be pruned, but not both
    with pytest.raises(ap.InputError, match=f"cannot prune {2 * half} of {masks.alive} alive weights"):
        ap.prune_cycle("global_magnitude", model, masks, half, half, snapshot(model))
    nothing = ap.prune_lowest(masks, scores, masks.alive)
    assert nothing.alive == 0
    with pytest.raises(ap.InputError, match="nothing left to prune"):
        ap.Budget(0.2).split(nothing.alive)


def test_scores_of_another_model_are_refused() -> None:
    masks = ap.Masks({"a": torch.tensor([True, True]), "b": torch.tensor([True])})
    good = {"a": torch.zeros(2), "b": torch.zeros(1)}
    for scores, says in [
        ({"a": torch.zeros(2)}, "no scores for layer 'b'"),
        (good | {"c": torch.zeros(1)}, "there is no mask for layer 'c'"),
        (good | {"a": torch.zeros(3)}, r"scores of layer 'a' are \(3,\), its mask is \(2,\)"),
        (good | {"b": torch.tensor([torch.nan])}, "scores of layer 'b': 1 of them are NaN or infinite"),
        (good | {"b": [0.5]}, "scores of layer 'b' are no tensor of real numbers"),
        (good | {"b": torch.tensor([1j])}, "scores of layer 'b' are no tensor of real numbers"),
    ]:
        for scope in ("global", "layer"):
            with pytest.raises(ap.InputError, match=says):
                ap.prune_lowest(masks, scores, 1, scope=scope)
    with pytest.raises(ap.InputError, match="unknown scope 'layers': did you mean 'layer'"):
        ap.prune_lowest(masks, good, 1, scope="layers")


def test_a_network_that_diverged_is_an_error_and_not_a_choice() -> None:
    model = SmallNet()
    model.conv2.weight.data[0, 0, 0, 0] = torch.nan
    masks = ap.Masks.dense(model)
    for method in ("global_magnitude", "layer_magnitude", "lamp", "global_gradient", "fisher", "synflow"):
        with pytest.raises(ap.InputError, match=r"scores of layer '\w+.weight': \d+ of them are NaN or infinite"):
            ap.prune_cycle(method, model, masks, 10, batches=small_batches(1))


def test_ap_needs_a_copy_of_where_the_training_started() -> None:
    model = SmallNet()
    masks = ap.Masks.dense(model)
    with pytest.raises(ap.InputError, match=r"^AP compares the trained weights with .*: pass start=$"):
        ap.prune_cycle("global_magnitude", model, masks, 18, 2)
    alias = model.state_dict()  # changes with the model
    with pytest.raises(ap.InputError, match=r"share the memory of 'conv1.weight': copy the state before training"):
        ap.prune_cycle("global_magnitude", model, masks, 18, 2, alias)
    with pytest.raises(ap.InputError, match="share the memory"):
        ap.prune_solo(model, masks, 20, alias)
    assert ap.prune_cycle("global_magnitude", model, masks, 18, 2, snapshot(model)).by_rule == 2


def test_a_method_that_prunes_before_training_cannot_go_with_ap() -> None:
    model = SmallNet()
    for method in ("snip", "synflow"):
        with pytest.raises(ap.InputError, match=f"method '{method}' prunes before any training"):
            ap.prune_cycle(method, model, ap.Masks.dense(model), 18, 2, snapshot(SmallNet()), batches=small_batches())


@pytest.mark.parametrize("count", [3.0, "3", None])
def test_a_count_is_a_whole_number(count: object) -> None:
    model = SmallNet()
    with pytest.raises(ap.InputError, match="a count of weights must be a whole number"):
        ap.prune_cycle("lamp", model, ap.Masks.dense(model), count)


def test_a_count_in_a_tensor_is_read_and_not_changed() -> None:
    model = SmallNet()
    masks, count = ap.Masks.dense(model), torch.tensor(3)
    assert ap.prune_lowest(masks, ap.score("lamp", model, masks), count).alive == masks.alive - 3
    assert count == 3


def test_an_unknown_rule_is_refused_before_any_work() -> None:
    model = SmallNet()
    with pytest.raises(ap.InputError, match="unknown activation rule 'app': did you mean 'ap'"):
        ap.prune_cycle("lamp", model, ap.Masks.dense(model), 3, rule="app")


# -- what is passed on


def test_seed_and_cycle_reach_the_method_and_the_rule() -> None:
    model = SmallNet()
    masks, start = ap.Masks.dense(model), snapshot(SmallNet())
    by_method = [ap.prune_cycle("random", model, masks, 50, seed=s, cycle=c).masks for s in (0, 1) for c in (0, 1)]
    ways = [{"seed": s, "cycle": c, "rule": "random"} for s in (0, 1) for c in (0, 1)]
    by_rule = [ap.prune_cycle("lamp", model, masks, 50, 50, start, **way).masks for way in ways]
    for choices in (by_method, by_rule):
        assert all(one != other for i, one in enumerate(choices) for other in choices[:i])
    again = ap.prune_cycle("random", model, masks, 50, seed=1, cycle=1).masks
    assert again == by_method[3] == ap.prune_lowest(masks, ap.score("random", model, masks, seed=1, cycle=1), 50)


def test_without_a_seed_it_is_cycle_0_of_seed_0() -> None:
    model = SmallNet()
    masks, start = ap.Masks.dense(model), snapshot(SmallNet())
    assert all(
        torch.equal(found, ap.score("random", model, masks, seed=0, cycle=0)[name])
        for name, found in ap.score("random", model, masks).items()
    )
    plain = ap.prune_cycle("random", model, masks, 50, 50, start, rule="random").masks
    assert plain == ap.prune_cycle("random", model, masks, 50, 50, start, rule="random", seed=0, cycle=0).masks


def test_a_random_score_is_the_next_uniform_number_of_seed_and_cycle() -> None:
    model = SmallNet()
    draw = torch.Generator().manual_seed(stable_seed(5, "method", 2))
    for name, found in ap.score("random", model, ap.Masks.dense(model), seed=5, cycle=2).items():
        assert torch.equal(found, torch.rand(model.get_parameter(name).shape, generator=draw))


def test_batches_loss_and_graph_reach_the_method() -> None:
    model = SmallNet().eval()
    masks = ap.Masks.dense(model)
    batches = [(x, torch.randn(len(x), 3)) for x, _ in small_batches(2)]
    graph, squared = ap.trace(model, batches[0][0]), nn.functional.mse_loss
    seen = []

    def slope(evidence: Evidence) -> dict[str, Tensor]:
        seen.append(evidence.graph)
        return evidence.gradient()

    METHODS._known["slope"] = Method("slope", slope)
    try:
        scores = ap.score("slope", model, masks, batches, squared, graph)
        after = ap.prune_cycle("slope", model, masks, 50, batches=iter(batches), loss_fn=squared, graph=graph).masks
    finally:
        del METHODS._known["slope"]
    assert [one is graph for one in seen] == [True, True]
    (sum(squared(model(x), y) for x, y in batches) / 2).backward()
    for name, found in scores.items():
        torch.testing.assert_close(found, model.get_parameter(name).grad)
    assert after == ap.prune_lowest(masks, scores, 50)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (1, [(1000, 2)]),
        (2, [(1000, 2), (316, 2)]),  # 1000 · 0.1^(0, 1/2)
        (3, [(1000, 2), (464, 2), (215, 2)]),  # 1000 · 0.1^(0, 1/3, 2/3)
    ],
)
def test_rounds_keep_the_same_fraction_each_and_may_read_batches_from_an_iterator(
    rounds: int, expected: list[tuple[int, int]]
) -> None:
    seen = []

    def witness(evidence: Evidence) -> dict[str, Tensor]:
        seen.append((evidence.masks.alive, len(list(evidence.batches()))))
        return evidence.weights

    METHODS._known["witness"] = Method("witness", witness, rounds=rounds)
    try:
        model = nn.Linear(100, 10)
        after = ap.prune_cycle("witness", model, ap.Masks.dense(model), 900, batches=iter([1, 2])).masks
    finally:
        del METHODS._known["witness"]
    assert seen == expected
    assert after.alive == 100


def test_each_round_prunes_by_the_scope() -> None:
    """The second round's scores are upside down: what a first round over the whole network took could not come back."""
    told = []

    def turning(evidence: Evidence) -> dict[str, Tensor]:
        told.append([int(mask.sum()) for mask in evidence.masks.values()])
        return {name: (weight if len(told) == 1 else -weight) for name, weight in evidence.weights.items()}

    METHODS._known["turning"] = Method("turning", turning, rounds=2)
    try:
        weights = {"a.weight": torch.arange(1.0, 17.0), "b.weight": torch.arange(21.0, 37.0)}
        masks = ap.Masks({name: torch.ones(16, dtype=torch.bool) for name in weights})
        after = ap.prune_cycle("turning", holder(weights), masks, 24, scope="layer").masks
    finally:
        del METHODS._known["turning"]
    assert told == [[16, 16], [8, 8]]  # 32 · ½ after the first of two rounds that keep a quarter
    assert [mask.nonzero().flatten().tolist() for mask in after.values()] == [[8, 9, 10, 11]] * 2


def test_a_method_of_one_round_reads_no_more_batches_than_it_wants() -> None:
    METHODS._known["first"] = Method("first", lambda evidence: next(evidence.batches()) and evidence.weights)
    try:
        model, batches = nn.Linear(4, 4), iter([1, 2, 3])
        ap.prune_cycle("first", model, ap.Masks.dense(model), 3, batches=batches)
    finally:
        del METHODS._known["first"]
    assert list(batches) == [2, 3]


@given(layers())
def test_applying_masks_twice_is_applying_them_once(drawn: tuple) -> None:
    tensors, masks = drawn
    model = holder(tensors)
    masks.apply_(model)
    once = snapshot(model)
    masks.apply_(model)
    assert same_state(model, once)
    assert ap.prune_lowest(masks, tensors, 0) == masks
