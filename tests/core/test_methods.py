"""Every method against a slow, obvious implementation of its formula."""

import math

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import activeprune as ap
from activeprune.core.methods import METHODS
from activeprune.core.methods.magnitude import lamp
from tests.helpers import SmallNet, layers, random_masks, same_state, small_batches, snapshot

DERIVATIVES = ["global_gradient", "snip", "fisher", "obd", "synflow"]
NEEDS_BATCHES = [name for name in METHODS if METHODS[name].batches]
FREE = [name for name in METHODS if not METHODS[name].batches and not METHODS[name].graph]


def masked(model: nn.Module, masks: ap.Masks) -> dict[str, Tensor]:
    """The model's weights with pruned ones 0."""
    return {n: torch.where(masks[n], p.detach(), 0.0) for n, p in model.named_parameters() if n in masks}


def batch_gradient(model: nn.Module, masks: ap.Masks, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """By loss.backward() on a copy of the network with pruned weights 0."""
    model.load_state_dict(snapshot(model) | masked(model, masks))
    model.zero_grad()
    cross_entropy(model(x), y).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if name in masks}


def mean(of: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([one[name] for one in of]).mean(0) for name in of[0]}


def assert_alive_close(
    scores: dict[str, Tensor], expected: dict[str, Tensor], masks: ap.Masks, rtol: float = 1e-5
) -> None:
    assert list(scores) == list(masks)
    for name, mask in masks.items():
        torch.testing.assert_close(scores[name][mask].float(), expected[name][mask].float(), rtol=rtol, atol=1e-9)


@pytest.mark.parametrize(
    ("method", "scope"), [("global_magnitude", "global"), ("layer_magnitude", "layer"), ("imp", "global")]
)
def test_magnitude_methods_are_absolute_values(method: str, scope: str) -> None:
    model = SmallNet()
    scores = ap.score(method, model, ap.Masks.dense(model))
    assert all(torch.equal(scores[name], p.detach().abs()) for name, p in model.named_parameters() if name in scores)
    assert METHODS[method].scope == scope


def slow_lamp(weight: Tensor, mask: Tensor) -> Tensor:
    """Sort the alive weights by (square, index); each is divided by the sum from itself to the end."""
    flat = [(float(w) ** 2, i) for i, w in enumerate(weight.flatten().double()) if mask.flatten()[i]]
    ranked = sorted(flat)
    scores = torch.zeros(weight.numel(), dtype=torch.float64)
    for position, (square, index) in enumerate(ranked):
        below = math.fsum(other for other, _ in ranked[position:])
        scores[index] = square / below if below else 0.0
    return scores.view(weight.shape)


@given(layers())
def test_lamp_is_the_share_of_the_weights_at_or_above_in_order_of_square_then_index(drawn: tuple) -> None:
    tensors, masks = drawn
    for name, weight in tensors.items():
        expected = slow_lamp(weight, masks[name])
        torch.testing.assert_close(
            lamp(weight, masks[name])[masks[name]].double(), expected[masks[name]], rtol=1e-6, atol=0
        )


@given(layers(tied=False))
def test_lamp_without_ties_and_in_float64(drawn: tuple) -> None:
    tensors, masks = drawn
    for name, weight in tensors.items():
        weight, mask = weight.double() * math.pi, masks[name]
        torch.testing.assert_close(lamp(weight, mask)[mask], slow_lamp(weight, mask)[mask], rtol=1e-12, atol=0)


def test_lamp_by_hand() -> None:
    weight = torch.tensor([2.0, -1.0, 1.0, 3.0])
    scores = lamp(weight, torch.tensor([True, True, True, False]))
    assert scores[:3].tolist() == pytest.approx([1.0, 1 / 6, 1 / 5])  # of the two ones, the first has more behind it


def test_the_largest_weight_of_a_layer_always_scores_one_under_lamp() -> None:
    model = SmallNet()
    masks = random_masks(model)
    assert all(scores[masks[name]].max() == 1 for name, scores in ap.score("lamp", model, masks).items())


def test_global_gradient_is_weight_times_gradient_averaged_over_batches_in_eval_mode() -> None:
    model = SmallNet()
    masks, batches = random_masks(model), small_batches(4)
    scores = ap.score("global_gradient", model, masks, batches)
    model.eval()
    grads = mean([batch_gradient(model, masks, x, y) for x, y in batches])
    assert_alive_close(scores, {n: (w * grads[n]).abs() for n, w in masked(model, masks).items()}, masks)


def test_a_loss_of_ones_own_is_used() -> None:
    model = SmallNet().eval()
    masks = ap.Masks.dense(model)
    batches = [(x, torch.randn(len(x), 3)) for x, _ in small_batches(1)]
    scores = ap.score("global_gradient", model, masks, batches, loss_fn=nn.functional.mse_loss)
    nn.functional.mse_loss(model(batches[0][0]), batches[0][1]).backward()
    assert_alive_close(scores, {n: (p * p.grad).detach().abs() for n, p in model.named_parameters()}, masks)


def test_dict_batches_use_the_loss_that_the_model_returns() -> None:
    class Labelled(SmallNet):
        def forward(self, pixels: Tensor, labels: Tensor) -> object:  # type: ignore[override]
            class Output:
                loss = cross_entropy(super(Labelled, self).forward(pixels), labels)

            return Output

    model = Labelled()
    masks = ap.Masks.dense(model)
    plain = SmallNet()
    plain.load_state_dict(model.state_dict())
    pairs = small_batches(2)
    dicts = [{"pixels": x, "labels": y} for x, y in pairs]
    for method in ("global_gradient", "fisher"):
        from_dicts = ap.score(method, model, masks, dicts)
        from_pairs = ap.score(method, plain, masks, pairs)
        assert all(torch.equal(from_dicts[name], from_pairs[name]) for name in masks)


def test_snip_is_weight_times_gradient_with_batch_statistics() -> None:
    model = SmallNet()
    masks, batches = ap.Masks.dense(model), small_batches(2, size=8)
    scores = ap.score("snip", model, masks, batches)
    before = snapshot(model)
    model.train()
    model.dropout.eval()  # nothing random
    grads = []
    for x, y in batches:
        grads.append(batch_gradient(model, masks, x, y))
        model.load_state_dict(before)
    average = mean(grads)
    assert_alive_close(scores, {n: (w * average[n]).abs() for n, w in masked(model, masks).items()}, masks)


def test_fisher_averages_squared_gradients_of_single_samples() -> None:
    model = SmallNet().eval()
    masks, batches = random_masks(model), small_batches(2)
    scores = ap.score("fisher", model, masks, batches)
    squares = [
        {name: grad.double() ** 2 for name, grad in batch_gradient(model, masks, x[i : i + 1], y[i : i + 1]).items()}
        for x, y in batches
        for i in range(len(x))
    ]
    assert len(squares) == 10
    average = mean(squares)
    assert_alive_close(scores, {n: w**2 * average[n] / 2 for n, w in masked(model, masks).items()}, masks)


class Tiny(nn.Module):
    """Small enough for an exact Hessian."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.b = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


def exact_hessian(model: nn.Module, names: list[str], x: Tensor, y: Tensor) -> Tensor:
    """torch's exact Hessian of one batch's loss, with respect to all the named weights in one vector."""
    weights = [dict(model.named_parameters())[name].detach() for name in names]

    def loss(vector: Tensor) -> Tensor:
        parts = vector.split([w.numel() for w in weights])
        tensors = {name: part.view_as(w) for name, part, w in zip(names, parts, weights, strict=True)}
        return cross_entropy(functional_call(model, tensors, x), y)

    return torch.autograd.functional.hessian(loss, torch.cat([w.flatten() for w in weights]))


def test_obd_agrees_with_the_exact_hessian_to_within_five_standard_errors() -> None:
    """With random signs, the variance of one probe at entry i is the sum of H_ij² over all j ≠ i."""
    model = Tiny()
    masks = ap.Masks.dense(model)
    batches = [(torch.randn(6, 2), torch.randint(0, 2, (6,))) for _ in range(3)]
    hessians = torch.stack([exact_hessian(model, list(masks), x, y) for x, y in batches])
    diagonal = hessians.mean(0).diagonal()
    off = hessians - torch.diag_embed(hessians.diagonal(dim1=1, dim2=2))
    halves = torch.cat([p.detach().flatten() ** 2 / 2 for name, p in model.named_parameters() if name in masks])
    for probes in (50, 800):
        scores = ap.score("obd", model, masks, batches, probes=probes, seed=1)
        error = torch.cat([score.flatten() for score in scores.values()]) - halves * diagonal
        deviation = halves * ((off**2).sum((0, 2)) / len(batches) ** 2 / probes).sqrt()
        assert (error.abs() < 5 * deviation).all()
        assert 0.5 < (error / deviation).square().mean().sqrt() < 1.5  # and no better than chance allows


def test_obd_is_exact_where_the_hessian_is_diagonal() -> None:
    """Loss Σ c·w²/2 has curvature c: one probe suffices, since every sign squares to 1."""
    model = nn.Linear(3, 1, bias=False)
    target = torch.tensor([1.0, 4.0, 9.0])
    batches = [(torch.eye(3), target)]
    loss = lambda output, c: (c * output.squeeze(1) ** 2).sum() / 2  # noqa: E731
    scores = ap.score("obd", model, ap.Masks.dense(model), batches, loss_fn=loss, probes=1)
    torch.testing.assert_close(scores["weight"], model.weight.detach() ** 2 * target / 2)


def test_obd_in_half_precision_averages_in_float32_and_knows_a_flat_loss() -> None:
    model = nn.Linear(3, 1, bias=False).bfloat16()
    masks, target = ap.Masks.dense(model), torch.tensor([1.0, 4.0, 9.0]).bfloat16()
    curved = lambda output, c: (c * output.squeeze(1) ** 2).sum() / 2  # noqa: E731
    scores = ap.score("obd", model, masks, [(torch.eye(3).bfloat16(), target)], loss_fn=curved, probes=1000)
    torch.testing.assert_close(
        scores["weight"], model.weight.detach().float() ** 2 * target.float() / 2, rtol=0.02, atol=0
    )
    flat = ap.score("obd", model, masks, [(torch.eye(3).bfloat16(), target)], loss_fn=lambda output, _: output.sum())
    assert (flat["weight"] == 0).all()


def test_obd_works_through_attention() -> None:
    """The fused attention kernels have no second derivative."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)).mean(1)

    model = Attention()
    scores = ap.score("obd", model, ap.Masks.dense(model), [(torch.randn(2, 4, 8), torch.tensor([1, 3]))], probes=2)
    assert any((score != 0).any() for score in scores.values())


def test_synflow_takes_the_absolute_value_of_everything() -> None:
    """With a negative bias the plain network would pass no flow at all."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    for parameter in model.parameters():
        parameter.data.fill_(-1.0)
    scores = ap.score("synflow", model, ap.Masks.dense(model), [torch.zeros(1, 2)])
    assert scores["0.weight"].tolist() == [[1, 1], [1, 1]]
    assert scores["2.weight"].tolist() == [[3, 3]]


def test_chains_of_the_methods() -> None:
    chains = {"imp": "rewind", "snip": "at_init", "synflow": "at_init", "lamp": None, "obd": None}
    assert {name: METHODS[name].chain for name in chains} == chains


def test_synflow_by_hand_on_a_linear_network() -> None:
    """R = Σ |B| |A| 1; the score of one weight is the sum of the products of all paths through it."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    model[0].weight.data = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    model[2].weight.data = torch.tensor([[-5.0, 6.0]])
    masks = ap.Masks.dense(model)
    scores = ap.score("synflow", model, masks, [torch.zeros(4, 2)])
    assert scores["0.weight"].tolist() == [[5, 10], [18, 24]]
    assert scores["2.weight"].tolist() == [[15, 42]]
    assert sum(float(s) for s in scores["0.weight"].sum(1)) == float(scores["2.weight"].sum())  # flow is conserved


def test_synflow_prunes_in_rounds_and_never_kills_a_layer_that_has_more_than_it_needs() -> None:
    """One round at 99 % empties layers; a hundred rounds keep a path through every one (its paper's theorem)."""
    model = nn.Sequential(nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 5))
    masks, batches = ap.Masks.dense(model), [torch.zeros(1, 50)]
    count = round(0.995 * masks.alive)
    many = ap.prune_cycle("synflow", model, masks, count, batches=batches).masks
    assert many.alive == masks.alive - count
    assert all(mask.any() for mask in many.values())
    once = ap.prune_lowest(masks, ap.score("synflow", model, masks, batches), count)
    assert not all(mask.any() for mask in once.values())


def test_random_is_seeded_uniform_and_the_same_in_every_layout() -> None:
    model = SmallNet()
    masks = ap.Masks.dense(model)
    first, again, other = (ap.score("random", model, masks, seed=seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in masks)
    assert not torch.equal(first["fc.weight"], other["fc.weight"])
    values = torch.cat([score.flatten() for score in first.values()])
    assert 0 <= values.min() < values.max() < 1
    assert abs(values.mean() - 0.5) < 0.05
    moved = ap.score("random", model.to(memory_format=torch.channels_last), masks, seed=3)
    assert all(torch.equal(first[name], moved[name]) for name in masks)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_scoring_changes_nothing_in_the_model(method: str) -> None:
    model = SmallNet()
    model.bn1.eval()
    model.fc.weight.grad = torch.ones_like(model.fc.weight)
    modes, before = [m.training for m in model.modules()], snapshot(model)
    masks, batches = random_masks(model), small_batches()
    with torch.no_grad():  # a caller's mode must not matter
        scores = ap.score(method, model, masks, batches)
    with torch.inference_mode():
        again = ap.score(method, model, masks, batches)
    assert all(torch.equal(scores[name], again[name]) for name in masks)
    assert same_state(model, before)
    assert [m.training for m in model.modules()] == modes
    assert (model.fc.weight.grad == 1).all()
    assert model.conv1.weight.grad is None
    assert all(not score.requires_grad and score.shape == masks[name].shape for name, score in scores.items())


@pytest.mark.parametrize("method", FREE)
def test_equal_values_in_bfloat16_channels_last_and_float32_give_the_same_masks(method: str) -> None:
    wide = SmallNet().bfloat16().float()
    narrow = SmallNet().bfloat16()
    last = SmallNet().to(memory_format=torch.channels_last)
    for copy in (narrow, last):
        copy.load_state_dict(wide.state_dict())
    masks = random_masks(wide)
    expected = ap.prune_cycle(method, wide, masks, 40).masks
    assert ap.prune_cycle(method, narrow, masks, 40).masks == expected
    assert ap.prune_cycle(method, last, masks, 40).masks == expected


@pytest.mark.parametrize("method", NEEDS_BATCHES)
def test_methods_with_gradients_agree_to_rounding_in_channels_last(method: str) -> None:
    model = SmallNet()
    last = SmallNet().to(memory_format=torch.channels_last)
    last.load_state_dict(model.state_dict())
    masks, batches = random_masks(model), small_batches()
    assert_alive_close(
        ap.score(method, last, masks, batches), ap.score(method, model, masks, batches), masks, rtol=1e-3
    )


def test_every_method_says_how_many_batches_it_wants() -> None:
    assert set(DERIVATIVES) <= set(NEEDS_BATCHES)
    assert {"global_magnitude", "layer_magnitude", "imp", "lamp", "random"} <= set(FREE)
    assert METHODS["global_gradient"].batches == METHODS["fisher"].batches == 20
    assert METHODS["synflow"].batches == 1


@pytest.mark.parametrize("method", NEEDS_BATCHES)
def test_methods_that_need_batches_say_so(method: str) -> None:
    model = SmallNet()
    for nothing in (None, []):
        with pytest.raises(ap.InputError, match=f"method '{method}': it needs batches"):
            ap.score(method, model, ap.Masks.dense(model), nothing)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (torch.zeros(2, 2, 6, 6), "a loss needs targets"),
        ((1, 2, 3), "a batch is a tensor, a pair .* not a tuple of 3"),
        ("text", "a batch is a tensor, a pair .* not str"),
        ({"x": torch.zeros(2, 2, 6, 6)}, "has no `loss`"),
    ],
)
def test_batches_that_are_none_are_described(batch: object, says: str) -> None:
    model = SmallNet()
    with pytest.raises(ap.InputError, match=says):
        ap.score("global_gradient", model, ap.Masks.dense(model), [batch])


def test_a_loss_must_be_one_number_and_probes_at_least_one() -> None:
    model = SmallNet()
    masks = ap.Masks.dense(model)
    with pytest.raises(ap.InputError, match=r"must be one number, not a tensor of shape \(5, 3\)"):
        ap.score("global_gradient", model, masks, small_batches(), loss_fn=lambda output, target: output)
    with pytest.raises(ap.InputError, match="probes = 0"):
        ap.score("obd", model, masks, small_batches(), probes=0)
    for odd in ("3", 2.5, True, None):
        with pytest.raises(ap.InputError, match=f"method 'obd': option probes = {odd!r} must be of type int"):
            ap.score("obd", model, masks, small_batches(), probes=odd)
    with pytest.raises(ap.InputError, match="synflow needs a network whose only input is a floating-point tensor"):
        ap.score("synflow", model, masks, [torch.zeros(2, 3, dtype=torch.long)])


def test_a_layer_that_the_loss_does_not_reach_scores_zero() -> None:
    class Unused(SmallNet):
        def __init__(self) -> None:
            super().__init__()
            self.spare = nn.Linear(2, 2)

    model = Unused()
    for method in DERIVATIVES:
        scores = ap.score(method, model, ap.Masks.dense(model), small_batches(1))
        assert (scores["spare.weight"] == 0).all()
