"""What cannot be pruned is refused, and says what would be right."""

import pytest
import torch

import activeprune as ap
from tests.helpers import SmallNet, random_masks, small_batches, snapshot


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
    copy = snapshot(model)
    model.fc.weight.data += 0.1  # a training
    assert ap.prune_cycle("global_magnitude", model, masks, 18, 2, copy).by_rule == 2


def test_where_nothing_has_moved_the_order_of_the_layers_chooses() -> None:
    """Algorithm 1 to the letter: all movements are equal, and ties go to the earlier layer, then the lower index."""
    model = SmallNet()
    masks = ap.Masks.dense(model)
    pruned = ap.prune_cycle("global_magnitude", model, masks, 0, 2, snapshot(model))
    first = next(iter(masks))
    negative = (dict(model.named_parameters())[first].reshape(-1) < 0).nonzero().reshape(-1)[:2]
    gone = (~pruned.masks[first]).reshape(-1).nonzero().reshape(-1)
    assert gone.tolist() == negative.tolist()


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


def test_what_is_of_another_kind_is_named() -> None:
    model = SmallNet()
    masks, start = ap.Masks.dense(model), snapshot(model)
    with pytest.raises(ap.InputError, match=r"^scores by name are needed, as ap\.score returns them, not a Tensor$"):
        ap.prune_lowest(masks, torch.ones(3), 1)  # type: ignore[arg-type]
    arrays = {name: tensor.numpy() for name, tensor in start.items()}
    with pytest.raises(ap.InputError, match=r"^start state: 'conv1\.weight' is a ndarray, a tensor is needed$"):
        ap.prune_cycle("global_magnitude", model, masks, 18, 2, arrays)  # type: ignore[arg-type]
    with pytest.raises(ap.InputError, match=r"^start state of another model: it has no 'conv1\.weight'"):
        ap.prune_cycle("global_magnitude", model, masks, 18, 2, {"other": torch.ones(1)})
