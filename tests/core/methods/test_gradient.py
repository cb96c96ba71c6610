"""Methods that look at the loss, against a slow, obvious implementation of each formula."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import activeprune as ap
from tests.core.methods.makers import assert_alive_close, batch_gradient, masked, mean
from tests.helpers import SmallNet, random_masks, small_batches, snapshot


def test_global_gradient_is_weight_times_gradient_averaged_over_batches_in_eval_mode() -> None:
    model = SmallNet()
    masks, batches = random_masks(model), small_batches(4)
    scores = ap.score("global_gradient", model, masks, batches)
    model.eval()
    grads = mean([batch_gradient(model, masks, x, y) for x, y in batches])
    assert_alive_close(scores, {n: (w * grads[n]).abs() for n, w in masked(model, masks).items()}, masks)


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


def test_obds_probes_are_a_whole_number_of_at_least_one() -> None:
    model = SmallNet()
    masks = ap.Masks.dense(model)
    with pytest.raises(ap.InputError, match="probes = 0"):
        ap.score("obd", model, masks, small_batches(), probes=0)
    for odd in ("3", 2.5, True, None):
        with pytest.raises(ap.InputError, match=f"method 'obd': option probes = {odd!r} must be of type int"):
            ap.score("obd", model, masks, small_batches(), probes=odd)
