"""The fused engine against torch, on the same numbers."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

from activeprune.training.fused import FusedResNets, Layout, Recipe
from activeprune.training.fused.layout import MOMENTUM
from activeprune.training.unavailable import EngineUnavailable
from tests.gpu.fused import (
    assert_same,
    batch_of,
    draws_of,
    engine_of,
    everyone,
    gradients_of,
    model_of,
    rates_of,
    states_of,
)
from tests.gpu.reference import Probe, error, nhwc

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="session")
def data():
    """512 images of ten classes that can be told apart, and their labels, on the GPU."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 10, (512,), generator=generator)
    patterns = torch.randint(0, 256, (10, 3, 4, 4), generator=generator).float()
    patterns = torch.nn.functional.interpolate(patterns, size=32)
    noise = torch.randint(0, 256, (512, 3, 32, 32), generator=generator)
    images = (0.4 * patterns[labels] + 0.6 * noise).to(torch.uint8)
    return images.cuda(), labels.cuda()


@pytest.fixture(autouse=True)
def exact_torch():
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True


# ---- every kernel on its own


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
@pytest.mark.parametrize("depth", [8, 20])
def test_every_convolution_is_torchs(data, depth, shortcut):
    engine = engine_of(data, [model_of(depth, shortcut, seed) for seed in range(2)], batch=24)
    engine.networks.codes[:, :1] = engine._code(*draws_of(engine, 1))
    probe = Probe(engine)
    probe.poison()
    probe.forward()
    probe.backward()


@pytest.mark.parametrize("augment", ["none", "crop", "crop_flip"])
def test_a_batch_is_cut_mirrored_and_normalised(data, augment):
    engine = engine_of(data, [model_of(8, seed=s) for s in range(2)], batch=32, augment=augment)
    order, shift, flip = draws_of(engine, 2)
    engine.train(order, shift, flip, rates_of(engine, 2, 0.0), everyone(engine))
    if augment == "none":
        shift = torch.full_like(shift, 4)
    if augment != "crop_flip":
        flip = torch.zeros_like(flip)
    for slot in range(2):
        x, y = batch_of(data, order[slot, 1], shift[slot, 1], flip[slot, 1])
        assert torch.equal(engine.buffers["input"][slot][..., :3], nhwc(x).bfloat16())
        assert torch.equal(engine.buffers["targets"][slot].long(), y)


@pytest.mark.parametrize(("classes", "smoothing"), [(10, 0.0), (10, 0.1), (100, 0.1)])
def test_the_head_is_torchs(data, classes, smoothing):
    engine = engine_of(data, [model_of(20, "pad", seed, classes) for seed in range(2)], label_smoothing=smoothing)
    order, shift, flip = draws_of(engine, 1)
    losses, right = engine.train(order, shift, flip, rates_of(engine, 1, 0.0), everyone(engine))
    probe = Probe(engine)
    for slot in range(2):
        last = engine.layout.blocks[-1].conv2
        x = (probe.normed(last, slot) + probe.shortcut(len(engine.layout.blocks), slot)).relu().bfloat16().float()
        x.requires_grad_()
        state = {k: v.cuda().requires_grad_() for k, v in engine.state(slot).items() if k.startswith("fc")}
        logits = F.linear(x.mean((1, 2)), state["fc.weight"], state["fc.bias"])
        labels = engine.buffers["targets"][slot].long()
        loss = F.cross_entropy(logits, labels, label_smoothing=smoothing)
        loss.backward()
        assert losses[slot, 0].item() == pytest.approx(loss.item(), rel=1e-5)
        assert right[slot, 0] == (logits.argmax(1) == labels).sum()
        found = gradients_of(engine, slot)
        assert error(found["fc.weight"], state["fc.weight"].grad.cpu()) < 1e-4
        assert error(found["fc.bias"], state["fc.bias"].grad.cpu()) < 1e-4


# ---- whole steps


def torch_gradients(model, x, y, autocast):
    model = deepcopy(model).train()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        logits = model(x.to(memory_format=torch.channels_last))
    loss = F.cross_entropy(logits.float(), y)
    loss.backward()
    return {name: p.grad.cpu() for name, p in model.named_parameters()}, loss.item(), model


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_gradients_are_as_near_to_float32_as_autocast_comes(data, shortcut):
    models = [model_of(20, shortcut, seed) for seed in range(3)]
    engine = engine_of(data, models, batch=128)
    order, shift, flip = draws_of(engine, 1)
    losses, _ = engine.train(order, shift, flip, rates_of(engine, 1, 0.0), everyone(engine))
    for slot, model in enumerate(models):
        x, y = batch_of(data, order[slot, 0], shift[slot, 0], flip[slot, 0])
        exact, loss, _ = torch_gradients(model, x, y, False)
        rounded, _, _ = torch_gradients(model, x, y, True)
        ours = gradients_of(engine, slot)
        assert losses[slot, 0].item() == pytest.approx(loss, rel=2e-2)
        errors = torch.tensor([[error(g[n], exact[n]) for n in exact] for g in (ours, rounded)])
        print(
            f"{shortcut}: error of gradients, median: ours {errors[0].median():.3f}, autocast {errors[1].median():.3f}"
        )
        assert errors[0].median() < 1.2 * errors[1].median()
        assert errors[0].max() < 2 * errors[1].max()


def test_running_statistics_are_torchs(data):
    models = [model_of(20, "conv", seed) for seed in range(2)]
    engine = engine_of(data, models, batch=128)
    order, shift, flip = draws_of(engine, 1)
    engine.train(order, shift, flip, rates_of(engine, 1, 0.0), everyone(engine))
    for slot, model in enumerate(models):
        _, _, seen = torch_gradients(model, *batch_of(data, order[slot, 0], shift[slot, 0], flip[slot, 0]), False)
        found = engine.state(slot)
        for name, wanted in seen.state_dict().items():
            if "running" in name:
                assert error(found[name], wanted.cpu()) < 2e-2, name
            if "num_batches" in name:
                assert found[name] == wanted.cpu() == 1


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_update_is_torchs_sgd(data, nesterov):
    engine = engine_of(data, [model_of(8, seed=s) for s in range(2)], nesterov=nesterov, weight_decay=1e-2)
    before = engine.state(1)
    momentum = {f"{n}{MOMENTUM}": torch.randn(p.shape) * 0.01 for n, p in engine.layout.parameters.items()}
    engine.place(1, before, momentum=momentum)
    parameters = {n: before[n].clone().requires_grad_() for n in engine.layout.parameters}
    optimizer = torch.optim.SGD(parameters.values(), 0.1, 0.9, 0, 1e-2, nesterov)
    for name, parameter in parameters.items():
        optimizer.state[parameter]["momentum_buffer"] = momentum[f"{name}{MOMENTUM}"].clone()
    order, shift, flip = draws_of(engine, 1)
    engine.train(order, shift, flip, rates_of(engine, 1, 0.1), everyone(engine))
    for name, gradient in gradients_of(engine, 1).items():
        parameters[name].grad = gradient
    optimizer.step()
    after, velocity = engine.state(1), engine.momentum(1)
    for name, parameter in parameters.items():
        assert error(after[name], parameter.detach()) < 1e-6, name
        assert error(velocity[f"{name}{MOMENTUM}"], optimizer.state[parameter]["momentum_buffer"]) < 1e-5, name


def test_pruned_weights_stay_zero(data):
    model = model_of(20)
    masks = {n: torch.rand(p.shape) < 0.3 for n, p in model.named_parameters() if p.ndim > 1}
    engine = engine_of(data, [model], masks)
    engine.train(*draws_of(engine, 10), rates_of(engine, 10, 0.1), everyone(engine))
    state, momentum = engine.state(0), engine.momentum(0)
    for name, mask in masks.items():
        assert (state[name][~mask] == 0).all()
        assert (momentum[f"{name}{MOMENTUM}"][~mask] == 0).all()
        assert (state[name][mask] != model.state_dict()[name].cpu()[mask]).any()


def test_evaluation_is_torchs(data):
    models = [model_of(20, "conv", seed) for seed in range(3)]
    engine = engine_of(data, models)
    engine.train(*draws_of(engine, 10), rates_of(engine, 10, 0.05), everyone(engine))
    rows = torch.stack([torch.randperm(512)[:200] for _ in models])
    losses, right = engine.evaluate(rows)
    assert losses.dtype == torch.float64
    for slot, model in enumerate(models):
        state = engine.state(slot)
        model.load_state_dict(state)
        middle = torch.full((200, 2), 4)
        x, y = batch_of(data, rows[slot], middle, torch.zeros(200, dtype=torch.bool))
        with torch.no_grad():
            logits = model.eval()(x)
        assert losses[slot].item() == pytest.approx(F.cross_entropy(logits, y, reduction="sum").item(), rel=2e-2)
        assert abs(right[slot].item() - (logits.argmax(1) == y).sum().item()) <= 4
        for name, tensor in engine.state(slot).items():
            assert torch.equal(tensor, state[name]), f"evaluation changed {name}"


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_losses_follow_torchs(data, shortcut):
    steps, rate = 20, 0.05
    model = model_of(20, shortcut)
    engine = engine_of(data, [model], batch=128)
    order, shift, flip = draws_of(engine, steps)
    losses = engine.train(order, shift, flip, rates_of(engine, steps, rate), everyone(engine))[0][0].cpu()
    curves = []
    for autocast in (False, True):
        own = deepcopy(model).train()
        optimizer = torch.optim.SGD(own.parameters(), rate, 0.9, weight_decay=5e-4)
        curve = []
        for step in range(steps):
            x, y = batch_of(data, order[0, step], shift[0, step], flip[0, step])
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                logits = own(x)
            loss = F.cross_entropy(logits.float(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        curves.append(torch.tensor(curve))
    ours, autocast = ((curve - curves[0]).abs().mean().item() for curve in (losses, curves[1]))
    print(
        f"{shortcut}: mean distance of losses from float32: ours {ours:.4f}, autocast {autocast:.4f}; {losses[-1]:.3f}"
    )
    assert losses[-1] < 0.8 * losses[0]
    assert ours < max(2 * autocast, 0.05)


# ---- who else is there


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_the_same_bits_alone_and_in_company(data, shortcut):
    alone = engine_of(data, [model_of(20, shortcut)], batch=128)
    draws, steps = draws_of(alone, 4), 4
    losses, right = alone.train(*draws, rates_of(alone, steps, 0.1), everyone(alone))
    score = alone.evaluate(torch.arange(200)[None])
    wanted = states_of(alone, 0)
    for members, slot in ((8, 3), (32, 31)):
        models = [model_of(20, shortcut, 0 if i == slot else 100 + i) for i in range(members)]
        engine = engine_of(data, models, batch=128)
        others = draws_of(engine, steps, seed=9)
        for mine, theirs in zip(draws, others, strict=True):
            theirs[slot] = mine[0]
        found = engine.train(*others, rates_of(engine, steps, 0.1), everyone(engine))
        assert torch.equal(found[0][slot], losses[0])
        assert torch.equal(found[1][slot], right[0])
        assert_same(wanted, states_of(engine, slot))
        scores = engine.evaluate(torch.arange(200).expand(members, -1))
        assert torch.equal(scores[0][slot], score[0][0])
        assert torch.equal(scores[1][slot], score[1][0])


def test_the_same_bits_again(data):
    results = []
    for _ in range(2):
        engine = engine_of(data, [model_of(20, seed=s) for s in range(4)], batch=128)
        losses, _ = engine.train(*draws_of(engine, 5), rates_of(engine, 5, 0.1), everyone(engine))
        results.append(
            {"losses": losses.cpu(), **{f"{s}/{n}": t for s in range(4) for n, t in states_of(engine, s).items()}}
        )
    assert_same(*results)


def test_steps_in_one_go_or_in_several(data, monkeypatch):
    results = []
    for room in (512, 16):
        for module in ("launches", "memory", "resnets"):
            monkeypatch.setattr(f"activeprune.training.fused.{module}.STEPS", room)
        engine = engine_of(data, [model_of(8)])
        losses, _ = engine.train(*draws_of(engine, 35), rates_of(engine, 35, 0.01), everyone(engine))
        results.append({"losses": losses.cpu(), **states_of(engine, 0)})
    assert_same(*results)


def test_who_diverges_or_rests_disturbs_nobody(data):
    models = [model_of(8, seed=s) for s in range(3)]
    calm = engine_of(data, models)
    draws = draws_of(calm, 3)
    calm.train(*draws, rates_of(calm, 3, 0.1), everyone(calm))
    broken = deepcopy(models[1])
    torch.nn.init.constant_(broken.blocks[0].conv1.weight, float("inf"))
    engine = engine_of(data, [models[0], broken, models[2]])
    active = torch.tensor([True, True, False])
    losses, _ = engine.train(*draws, rates_of(engine, 3, 0.1), active)
    assert_same(states_of(calm, 0), states_of(engine, 0))
    assert not torch.isfinite(losses[1]).any()
    assert (losses[2] == 0).all()
    resting = engine.state(2)
    for name, tensor in models[2].state_dict().items():
        assert torch.equal(resting[name], tensor.cpu()), name


def test_training_goes_on_where_it_stopped(data):
    whole = engine_of(data, [model_of(20)])
    order, shift, flip = draws_of(whole, 6)
    rates = torch.linspace(0.1, 0.01, 6)[None]
    whole.train(order, shift, flip, rates, everyone(whole))
    first = engine_of(data, [model_of(20)])
    first.train(order[:, :2], shift[:, :2], flip[:, :2], rates[:, :2], everyone(first))
    second = engine_of(data, [model_of(20, seed=1)])
    second.place(0, first.state(0), momentum=first.momentum(0))
    second.train(order[:, 2:], shift[:, 2:], flip[:, 2:], rates[:, 2:], everyone(second))
    assert_same(states_of(whole, 0), states_of(second, 0))


def test_a_machine_without_a_gpu_is_told_so(data):
    with pytest.raises(EngineUnavailable, match="need an NVIDIA GPU that torch can use, not cpu"):
        FusedResNets(Layout(20, "conv", 10), Recipe(), data[0].cpu(), data[1].cpu(), 1)
    with pytest.raises(ValueError, match="batch = 12"):
        FusedResNets(Layout(20, "conv", 10), Recipe(batch=12), *data, 1)
