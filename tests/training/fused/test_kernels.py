"""The fused kernels against torch, on the same numbers: on a CPU, where they are emulated, and on a GPU.

A CPU has time for fewer and smaller networks; `of` says which.
"""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

from activeprune.training.fused.layout import MOMENTUM
from tests.training.fused.makers import (
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
from tests.training.fused.reference import Probe, error, nhwc


def of(data, cpu, gpu):
    """One of the two, after where the images are."""
    return gpu if data[0].is_cuda else cpu


def here(data, model):
    return deepcopy(model).to(data[0].device)


# ---- every kernel on its own


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
@pytest.mark.parametrize("deep", [False, True])
def test_every_convolution_is_torchs(data, deep, shortcut):
    depth = of(data, 14, 20) if deep else 8
    engine = engine_of(data, [model_of(depth, shortcut, seed) for seed in range(2)], batch=24)
    engine.networks.codes[:, :1] = engine._code(*draws_of(engine, 1))
    probe = Probe(engine)
    probe.poison()
    probe.forward()
    probe.backward()


@pytest.mark.parametrize("augment", ["none", "crop", "crop_flip"])
def test_a_batch_is_cut_mirrored_and_normalised(data, augment):
    batch = of(data, 8, 32)
    engine = engine_of(data, [model_of(8, seed=s) for s in range(2)], batch=batch, augment=augment)
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
    models = [model_of(of(data, 8, 20), "pad", seed, classes) for seed in range(2)]
    engine = engine_of(data, models, label_smoothing=smoothing, batch=of(data, 16, 64))
    order, shift, flip = draws_of(engine, 1)
    losses, right = engine.train(order, shift, flip, rates_of(engine, 1, 0.0), everyone(engine))
    probe = Probe(engine)
    for slot in range(2):
        last = engine.layout.blocks[-1].conv2
        x = (probe.normed(last, slot) + probe.shortcut(len(engine.layout.blocks), slot)).relu().bfloat16().float()
        x.requires_grad_()
        named = {name: tensor.to(engine.device) for name, tensor in engine.state(slot).items()}
        state = {name: tensor.requires_grad_() for name, tensor in named.items() if name.startswith("fc")}
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
    model = deepcopy(model).to(x.device).train()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
        logits = model(x.to(memory_format=torch.channels_last))
    loss = F.cross_entropy(logits.float(), y)
    loss.backward()
    return {name: p.grad.cpu() for name, p in model.named_parameters()}, loss.item(), model


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_gradients_are_as_near_to_float32_as_autocast_comes(data, shortcut):
    models = [model_of(of(data, 8, 20), shortcut, seed) for seed in range(of(data, 1, 3))]
    engine = engine_of(data, models, batch=of(data, 32, 128))
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
    models = [model_of(of(data, 8, 20), "conv", seed) for seed in range(2)]
    engine = engine_of(data, models, batch=of(data, 16, 128))
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
    models = [model_of(8, seed=s) for s in range(2)]
    engine = engine_of(data, models, nesterov=nesterov, weight_decay=1e-2, batch=of(data, 8, 64))
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
    model, steps = model_of(of(data, 8, 20)), of(data, 3, 10)
    masks = {n: torch.rand(p.shape) < 0.3 for n, p in model.named_parameters() if p.ndim > 1}
    engine = engine_of(data, [model], masks, batch=of(data, 16, 64))
    engine.train(*draws_of(engine, steps), rates_of(engine, steps, 0.1), everyone(engine))
    state, momentum = engine.state(0), engine.momentum(0)
    for name, mask in masks.items():
        assert (state[name][~mask] == 0).all()
        assert (momentum[f"{name}{MOMENTUM}"][~mask] == 0).all()
        assert (state[name][mask] != model.state_dict()[name][mask]).any()


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_evaluation_is_torchs(data, shortcut):
    models = [model_of(of(data, 14, 20), shortcut, seed) for seed in range(of(data, 2, 3))]
    engine = engine_of(data, models, batch=of(data, 8, 64))
    steps, shown = of(data, 1, 10), of(data, 24, 200)
    engine.train(*draws_of(engine, steps), rates_of(engine, steps, 0.05), everyone(engine))
    rows = torch.stack([torch.randperm(512)[:shown] for _ in models])
    losses, right = engine.evaluate(rows)
    assert losses.dtype == torch.float64
    for slot, model in enumerate(models):
        state = engine.state(slot)
        middle = torch.full((shown, 2), 4)
        x, y = batch_of(data, rows[slot], middle, torch.zeros(shown, dtype=torch.bool))
        model.load_state_dict(state)
        with torch.no_grad():
            logits = here(data, model).eval()(x)
        assert losses[slot].item() == pytest.approx(F.cross_entropy(logits, y, reduction="sum").item(), rel=2e-2)
        assert abs(right[slot].item() - (logits.argmax(1) == y).sum().item()) <= shown // 50
        for name, tensor in engine.state(slot).items():
            assert torch.equal(tensor, state[name]), f"evaluation changed {name}"


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_evaluation_with_a_batchs_own_moments_gives_what_training_does_to_the_bit(data, shortcut):
    models = [model_of(of(data, 14, 20), shortcut, seed) for seed in range(of(data, 2, 3))]
    engine = engine_of(data, models, batch=of(data, 8, 64), augment="none")
    order, shift, flip = draws_of(engine, 1)
    losses, right = engine.train(order, shift, flip, rates_of(engine, 1, 0.0), everyone(engine))
    engine.running.copy_(engine.buffers["moments"])
    scores = engine.evaluate(order[:, 0])
    assert torch.equal(scores[0], losses[:, 0].double() * engine.batch)
    assert torch.equal(scores[1], right[:, 0])


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_losses_follow_torchs(data, shortcut):
    steps, rate = of(data, 3, 20), 0.05
    model = model_of(of(data, 8, 20), shortcut)
    engine = engine_of(data, [model], batch=of(data, 16, 128))
    order, shift, flip = draws_of(engine, steps)
    losses = engine.train(order, shift, flip, rates_of(engine, steps, rate), everyone(engine))[0][0].cpu()
    curves = []
    for autocast in (False, True):
        own = here(data, model).train()
        optimizer = torch.optim.SGD(own.parameters(), rate, 0.9, weight_decay=5e-4)
        curve = []
        for step in range(steps):
            x, y = batch_of(data, order[0, step], shift[0, step], flip[0, step])
            with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
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
    if data[0].is_cuda:  # a CPU has no time for as many steps
        assert losses[-1] < 0.8 * losses[0]
    assert ours < max(2 * autocast, 0.05)


# ---- who else is there


@pytest.mark.parametrize("shortcut", ["conv", "pad"])
def test_the_same_bits_alone_and_in_company(data, shortcut):
    depth, batch, shown, steps = of(data, (8, 8, 20, 2), (20, 128, 200, 4))
    alone = engine_of(data, [model_of(depth, shortcut)], batch=batch)
    draws = draws_of(alone, steps)
    losses, right = alone.train(*draws, rates_of(alone, steps, 0.1), everyone(alone))
    score = alone.evaluate(torch.arange(shown)[None])
    wanted = states_of(alone, 0)
    for members, slot in of(data, ((2, 1), (5, 3)), ((8, 3), (32, 31))):
        models = [model_of(depth, shortcut, 0 if i == slot else 100 + i) for i in range(members)]
        engine = engine_of(data, models, batch=batch)
        others = draws_of(engine, steps, seed=9)
        for mine, theirs in zip(draws, others, strict=True):
            theirs[slot] = mine[0]
        found = engine.train(*others, rates_of(engine, steps, 0.1), everyone(engine))
        assert torch.equal(found[0][slot], losses[0])
        assert torch.equal(found[1][slot], right[0])
        assert_same(wanted, states_of(engine, slot))
        scores = engine.evaluate(torch.arange(shown).expand(members, -1))
        assert torch.equal(scores[0][slot], score[0][0])
        assert torch.equal(scores[1][slot], score[1][0])


def test_the_same_bits_again(data):
    depth, batch, members, steps = of(data, (8, 8, 2, 2), (20, 128, 4, 5))
    results = []
    for _ in range(2):
        engine = engine_of(data, [model_of(depth, seed=s) for s in range(members)], batch=batch)
        losses, _ = engine.train(*draws_of(engine, steps), rates_of(engine, steps, 0.1), everyone(engine))
        states = {f"{s}/{n}": t for s in range(members) for n, t in states_of(engine, s).items()}
        results.append({"losses": losses.cpu(), **states})
    assert_same(*results)


def test_steps_in_one_go_or_in_several(data, monkeypatch):
    results, steps = [], of(data, 5, 35)
    for room in (512, of(data, 2, 16)):
        for module in ("launches", "memory", "resnets"):
            monkeypatch.setattr(f"activeprune.training.fused.{module}.STEPS", room)
        engine = engine_of(data, [model_of(8)], batch=of(data, 8, 64))
        losses, _ = engine.train(*draws_of(engine, steps), rates_of(engine, steps, 0.01), everyone(engine))
        results.append({"losses": losses.cpu(), **states_of(engine, 0)})
    assert_same(*results)


def test_who_diverges_or_rests_disturbs_nobody(data):
    models, (batch, steps) = [model_of(8, seed=s) for s in range(3)], of(data, (8, 2), (64, 3))
    calm = engine_of(data, models, batch=batch)
    draws = draws_of(calm, steps)
    calm.train(*draws, rates_of(calm, steps, 0.1), everyone(calm))
    broken = deepcopy(models[1])
    torch.nn.init.constant_(broken.blocks[0].conv1.weight, float("inf"))
    engine = engine_of(data, [models[0], broken, models[2]], batch=batch)
    active = torch.tensor([True, True, False])
    losses, _ = engine.train(*draws, rates_of(engine, steps, 0.1), active)
    assert_same(states_of(calm, 0), states_of(engine, 0))
    assert not torch.isfinite(losses[1]).any()
    assert (losses[2] == 0).all()
    resting = engine.state(2)
    for name, tensor in models[2].state_dict().items():
        assert torch.equal(resting[name], tensor), name


def test_training_goes_on_where_it_stopped(data):
    depth, batch, steps = of(data, (8, 8, 3), (20, 64, 6))
    whole = engine_of(data, [model_of(depth)], batch=batch)
    order, shift, flip = draws_of(whole, steps)
    rates = torch.linspace(0.1, 0.01, steps)[None]
    whole.train(order, shift, flip, rates, everyone(whole))
    first = engine_of(data, [model_of(depth)], batch=batch)
    first.train(order[:, :2], shift[:, :2], flip[:, :2], rates[:, :2], everyone(first))
    second = engine_of(data, [model_of(depth, seed=1)], batch=batch)
    second.place(0, first.state(0), momentum=first.momentum(0))
    second.train(order[:, 2:], shift[:, 2:], flip[:, 2:], rates[:, 2:], everyone(second))
    assert_same(states_of(whole, 0), states_of(second, 0))
