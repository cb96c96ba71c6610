"""What a method learns of the loss."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import activeprune as ap
from tests.core.methods.makers import assert_alive_close
from tests.helpers import SmallNet, small_batches


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


def test_a_loss_must_be_one_number() -> None:
    model = SmallNet()
    with pytest.raises(ap.InputError, match=r"must be one number, not a tensor of shape \(5, 3\)"):
        ap.score(
            "global_gradient", model, ap.Masks.dense(model), small_batches(), loss_fn=lambda output, target: output
        )
