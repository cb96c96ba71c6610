"""CPU and GPU make the same masks of the same scores; hold works there too."""

import pytest
import torch

import activeprune as ap
from activeprune.core.activation import RULES
from activeprune.core.methods import METHODS
from activeprune.core.methods.magnitude import lamp
from tests.helpers import OPTIMIZERS, SmallNet, pruned_are_zero, random_masks, small_batches

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that this torch can use"),
]


@pytest.mark.parametrize("scope", ["global", "layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_scores_give_equal_masks_with_many_ties(scope: str, dtype: torch.dtype) -> None:
    scores = {"a": torch.randint(-9, 9, (300, 400)).to(dtype), "b": torch.randn(64, 32, 3, 3).to(dtype)}
    masks = ap.Masks({name: torch.rand(score.shape) < 0.7 for name, score in scores.items()})
    there = {name: score.cuda() for name, score in scores.items()}
    there["b"] = there["b"].to(memory_format=torch.channels_last)
    for count in (1, 5000, 60_000, masks.alive):
        expected = ap.prune_lowest(masks, scores, count, scope=scope)
        assert ap.prune_lowest(masks.to("cuda"), there, count, scope=scope).to("cpu") == expected
        assert ap.prune_lowest(masks, there, count, scope=scope) == expected  # masks fresh from disk


@pytest.mark.parametrize("method", ["global_magnitude", "layer_magnitude", "imp", "random"])
def test_methods_without_arithmetic_are_identical(method: str) -> None:
    model = SmallNet()
    masks = random_masks(model)
    expected = ap.prune_cycle(method, model, masks, 50).masks
    assert ap.prune_cycle(method, model.cuda(), masks.to("cuda"), 50).masks.to("cpu") == expected


@pytest.mark.parametrize("method", sorted(METHODS))
def test_scores_agree_to_rounding(method: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = SmallNet()
    masks, batches = random_masks(model), small_batches()
    here = ap.score(method, model, masks, batches)
    there = ap.score(method, model.cuda(), masks.to("cuda"), [(x.cuda(), y.cuda()) for x, y in batches])
    for name, mask in masks.items():
        torch.testing.assert_close(there[name].cpu()[mask], here[name][mask], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_activation_is_identical(rule: str) -> None:
    trained = {"a": torch.randn(200, 300), "b": torch.randint(-3, 3, (5000,)) / 4}
    start = {name: weight + torch.randint(-2, 3, weight.shape) / 8 for name, weight in trained.items()}
    masks = ap.Masks({name: torch.rand(weight.shape) < 0.8 for name, weight in trained.items()})
    expected = ap.activate(masks, trained, start, 2000, rule=rule, seed=5)
    there = [{name: weight.cuda() for name, weight in state.items()} for state in (trained, start)]
    assert ap.activate(masks.to("cuda"), *there, 2000, rule=rule, seed=5).to("cpu") == expected


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruned_stays_pruned_under_autocast_and_scaling(name: str) -> None:
    model = SmallNet()
    masks = random_masks(model)
    optimizer = OPTIMIZERS[name](model.cuda().parameters())
    masks.hold(model, optimizer)  # masks on the CPU, model on the GPU
    scaler = torch.amp.GradScaler("cuda", init_scale=64.0)
    for x, y in small_batches(6):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.state  # steps were taken
    assert pruned_are_zero(model.cpu(), masks)


def test_lamp_on_ten_million_weights_agrees_with_float64() -> None:
    weight = torch.randn(10_000_000)
    mask = torch.ones_like(weight, dtype=torch.bool)
    scores = lamp(weight.cuda(), mask.cuda()).cpu()
    assert scores.max() == 1
    torch.testing.assert_close(scores, lamp(weight.double(), mask).float(), rtol=1e-5, atol=0)


def test_obd_works_through_fused_attention() -> None:
    """The fused kernels of a GPU have no second derivative."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(64, 64) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (layer(x).unsqueeze(1) for layer in (self.q, self.k, self.v))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).mean((1, 2))

    model = Attention().cuda().bfloat16()
    batch = (torch.randn(2, 16, 64).cuda().bfloat16(), torch.tensor([1, 3]).cuda())
    scores = ap.score("obd", model, ap.Masks.dense(model), [batch], probes=2)
    assert all(score.isfinite().all() and (score != 0).any() for score in scores.values())
