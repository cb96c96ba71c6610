"""Training on a GPU: the same data and the same arithmetic, and no waiting in a step."""

import pytest
import torch

from activeprune.data import augmented, draws
from activeprune.training import Training
from activeprune.training.member import Member
from tests.training.makers import by_itself, half, same_result, start_of, training

pytestmark = pytest.mark.gpu

FULL = training(augment="crop_flip", nesterov=True, weight_decay=1e-3, clip=1.0, label_smoothing=0.1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_step_never_waits_for_the_device(optimizer: str, precision: str, waiting_is_an_error) -> None:
    chosen = FULL.model_copy(update={"optimizer": optimizer, "nesterov": False, "precision": precision})
    device = torch.device("cuda")
    member = Member(chosen, chosen.build(2, 2), start_of(chosen), half(chosen), device)
    rates = torch.full((10,), 0.1, device=device)
    batches = chosen.feed(0, "cuda").training(0)
    member.step(*next(batches))  # the first one sets up libraries and momentum
    waiting_is_an_error()
    for index, (x, y) in enumerate(batches):
        member.rate.copy_(rates[index])
        member.step(x, y)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_number_of_a_state_that_is_not_finite_is_seen(bad: float) -> None:
    """Also at the end of a tensor of millions."""
    model = FULL.build(2, 2)
    model.register_buffer("long", torch.zeros(3_000_001))
    member = Member(FULL, model, model.state_dict(), None, torch.device("cuda"))
    assert member.is_finite()
    for name in ("5.bias", "1.running_var", "0.weight", "long"):
        end = model.state_dict()[name].view(-1)[-1]
        kept = end.clone()
        end.fill_(bad)
        assert not member.is_finite()
        end.copy_(kept)
    assert member.is_finite()


def test_the_same_inputs_give_the_same_bits_on_one_gpu() -> None:
    start, masks = start_of(FULL), half(FULL)
    assert same_result(*(by_itself(FULL, 3, start, masks, device="cuda") for _ in range(2)))


def test_a_gpu_sees_the_data_of_a_cpu_and_computes_the_same() -> None:
    on_cpu, on_gpu = (list(FULL.feed(3, device).training(2)) for device in ("cpu", "cuda"))
    for (x, y), (x_gpu, y_gpu) in zip(on_cpu, on_gpu, strict=True):
        assert torch.equal(y, y_gpu.cpu())
        torch.testing.assert_close(x, x_gpu.cpu(), rtol=1e-6, atol=1e-6)
    short = FULL.model_copy(update={"epochs": FULL.epochs.read("6it")})
    start, masks = start_of(short), half(short)
    one, two = (by_itself(short, 3, start, masks, device=device) for device in ("cpu", "cuda"))
    for name, tensor in one.state.items():
        torch.testing.assert_close(tensor, two.state[name], rtol=1e-3, atol=1e-5)


def test_a_training_moves_from_one_device_to_the_other() -> None:
    kept = []
    keep = lambda record, checkpoint: kept.append(checkpoint())  # noqa: E731
    start = start_of(FULL)
    by_itself(FULL, 3, start, last=1, after_epoch=keep, device="cuda")
    moved = by_itself(FULL, 3, start, resume=kept[0], device="cpu")
    stayed = by_itself(FULL, 3, start, device="cpu")
    for name, tensor in moved.state.items():
        torch.testing.assert_close(tensor, stayed.state[name], rtol=1e-2, atol=1e-3)


def test_augmentation_is_the_same_to_the_byte() -> None:
    pixels = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8)
    drawn = draws(0, 0, 64)
    there = drawn.to("cuda")
    found = augmented(pixels.cuda(), there.shift, there.flip).cpu()
    assert torch.equal(found, augmented(pixels, drawn.shift, drawn.flip))


def test_resnet20_trains_in_bf16_on_resized_images() -> None:
    chosen = Training(
        network="resnet20", data={"name": "digits", "limit": 500}, resolution=32, augment="crop", lr=0.05,
        epochs="3ep", batch=50, precision="bf16",
    )  # fmt: skip
    result = by_itself(chosen, 0, chosen.build(10, channels=1).state_dict(), device="cuda")
    assert result.failure is None
    assert result.epochs[-1].train_loss < result.epochs[0].train_loss
