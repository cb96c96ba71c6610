"""The fused engine against torch, on the same numbers."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

from activeprune.data.augment import augmented
from activeprune.networks.cifar_resnet import CifarResNet
from activeprune.training.fused import FusedResNets
from activeprune.training.fused.layout import MOMENTUM
from activeprune.training.unavailable import EngineUnavailable

pytestmark = pytest.mark.gpu

SCALE = torch.tensor([1 / (255 * s) for s in (0.247, 0.2435, 0.2616)])
SHIFT = torch.tensor([-m / s for m, s in ((0.4914, 0.247), (0.4822, 0.2435), (0.4465, 0.2616))])
BF16 = 4e-3  # relative error of one rounding to bf16, with room


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


def model_of(depth=20, shortcut="conv", seed=0, classes=10):
    """A network whose norms are not all alike."""
    torch.manual_seed(seed)
    model = CifarResNet(depth, classes, 3, shortcut)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.weight, 1, 0.2)
            torch.nn.init.normal_(module.bias, 0, 0.2)
        elif isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    return model.cuda()


def engine_of(data, models, masks=None, **options):
    depth = 6 * (len(models[0].blocks) // 3) + 2
    shortcut = "conv" if any("shortcut" in name for name in models[0].state_dict()) else "pad"
    settings = {"batch": 64, "weight_decay": 5e-4, **options}
    classes = models[0].fc.out_features
    engine = FusedResNets(depth, shortcut, classes, *data, members=len(models), **settings)
    for slot, model in enumerate(models):
        engine.place(slot, model.state_dict(), masks, None, SCALE, SHIFT)
    return engine


def draws_of(engine, steps, seed=0, images=512):
    """Order, shift and flip of `steps` batches for every network, each with its own."""
    generator = torch.Generator().manual_seed(seed)
    shape = (engine.members, steps, engine.batch)
    order = torch.randint(0, images, shape, generator=generator)
    shift = torch.randint(0, 9, (*shape, 2), generator=generator)
    return order, shift, torch.rand(shape, generator=generator) < 0.5


def batch_of(data, order, shift, flip):
    """What a network sees, float32 [B, 3, 32, 32], and its labels."""
    pixels = augmented(data[0][order.cuda()], shift.cuda(), flip.cuda()).float()
    return pixels.mul_(SCALE.cuda()[:, None, None]).add_(SHIFT.cuda()[:, None, None]), data[1][order.cuda()]


def everyone(engine):
    return torch.ones(engine.members, dtype=torch.bool)


def rates_of(engine, steps, rate):
    return torch.full((engine.members, steps), rate)


def error(found, wanted):
    found, wanted = found.double().flatten(), wanted.double().flatten()
    assert torch.isfinite(found).all()
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))


def gradients_of(engine, slot):
    """The gradient that the engine's partial sums add up to, by parameter name."""
    rows = torch.zeros(engine.layout.size)
    for name, parameter in engine.layout.parameters.items():
        owner, _, kind = name.rpartition(".")
        if owner in engine.layout.norms:
            sums = engine.buffers[f"{owner}/gradient_sums"][slot].sum(0).view(2, -1)[1 if kind == "weight" else 0]
        else:
            sums = engine.buffers[f"{name}/sums"][slot].sum(0)
        rows[parameter.start : parameter.start + parameter.length] = sums.cpu()
    return engine.layout.tensors(rows)


# ---- every kernel on its own


def nchw(x):
    return x.float().permute(0, 3, 1, 2).contiguous()


def nhwc(x):
    return x.permute(0, 2, 3, 1)


class Probe:
    """One engine, driven launch by launch; `check` compares a kernel with torch on the very numbers that it read."""

    def __init__(self, engine):
        self.engine, self.layout, self.buffers = engine, engine.layout, engine.buffers
        self.launches = zip(*(branch.launches for branch in engine._training), strict=True)

    def poison(self):
        """What is not written must be seen."""
        for name, buffer in self.buffers.items():
            if buffer.is_floating_point() and name != "correction":
                buffer.fill_(float("nan"))

    def run(self, *names):
        for step in next(self.launches):  # of every branch
            assert step.kernel in names, (step.kernel, names)
            step.launch(False)
        torch.cuda.synchronize()

    def moments(self, norm, slot):
        mean, variance = self.buffers["moments"][slot, :, norm.start : norm.start + norm.channels]
        return mean, (variance + 1e-5).rsqrt()

    def affine(self, norm, slot):
        mean, deviation = self.moments(norm, slot)
        values = self.layout.tensors(self.engine.parameters[slot])
        gamma, beta = values[f"{norm.name}.weight"], values[f"{norm.name}.bias"]
        return gamma * deviation, beta - mean * gamma * deviation

    def normed(self, conv, slot):
        scale, shift = self.affine(conv.norm, slot)
        return self.buffers[f"{conv.name}/raw"][slot].float() * scale + shift

    def weight(self, conv, slot):
        return conv.weight.from_flat(self.engine.parameters[slot]).bfloat16().float()

    def shortcut(self, index, slot):
        """What is added before block `index`."""
        if index == 0:
            return 0
        block, joined = self.layout.blocks[index - 1], self.buffers[f"blocks.{index - 1}/joined"][slot].float()
        if block.projection is not None:
            return self.normed(block.projection, slot)
        if block.conv1.down:
            extra = block.conv1.outputs - block.conv1.inputs
            return F.pad(joined[:, ::2, ::2], (extra // 2, extra // 2))
        return joined

    def check_sums(self, conv, slot):
        y = self.buffers[f"{conv.name}/raw"][slot].double()
        sums = self.buffers[f"{conv.norm.name}/sums"][slot].double().sum(0).view(2, -1)
        assert error(sums[0], y.sum((0, 1, 2))) < 1e-5
        assert error(sums[1], y.square().sum((0, 1, 2))) < 1e-5

    def check_conv(self, conv, x, slot):
        wanted = nhwc(F.conv2d(nchw(x), self.weight(conv, slot), stride=conv.stride, padding=conv.kernel // 2))
        assert error(self.buffers[f"{conv.name}/raw"][slot], wanted) < BF16, conv.name
        self.check_sums(conv, slot)

    def forward(self):
        slots = range(self.engine.members)
        self.run("gather")
        self.run("stem_forward")
        for slot in slots:
            pixels = self.buffers["input"][slot]
            assert (pixels[..., 3] == 0).all()
            self.check_conv(self.layout.stem, pixels[..., :3], slot)
        for index, block in enumerate(self.layout.blocks):
            before = self.layout.blocks[index - 1].conv2 if index else self.layout.stem
            width = block.conv1.outputs
            self.run(f"forward_{width}_join", f"forward_{width}_down", f"forward_{width}_project")
            for slot in slots:
                joined = self.buffers[f"blocks.{index}/joined"][slot]
                wanted = (self.normed(before, slot) + self.shortcut(index, slot)).relu()
                assert error(joined, wanted) < BF16, f"input of block {index}"
                self.check_conv(block.conv1, joined, slot)
                if block.projection is not None:
                    self.check_conv(block.projection, joined, slot)
            self.run(f"forward_{width}_middle")
            for slot in slots:
                self.check_conv(block.conv2, self.normed(block.conv1, slot).relu().bfloat16(), slot)

    def dy(self, conv, gradient, slot):
        """The gradient at a convolution's output, from that at its norm's."""
        y = self.buffers[f"{conv.name}/raw"][slot].float()
        mean, deviation = self.moments(conv.norm, slot)
        scale, _ = self.affine(conv.norm, slot)
        count = self.engine.batch * conv.side**2
        sums = self.buffers[f"{conv.norm.name}/gradient_sums"][slot].sum(0).view(2, -1)
        return (scale * (gradient.float() - sums[0] / count - (y - mean) * deviation * sums[1] / count)).bfloat16()

    def check_gradient_sums(self, conv, gradient, slot):
        y = self.buffers[f"{conv.name}/raw"][slot].double()
        mean, deviation = self.moments(conv.norm, slot)
        sums = self.buffers[f"{conv.norm.name}/gradient_sums"][slot].double().sum(0).view(2, -1)
        g = gradient.double()
        assert error(sums[0], g.sum((0, 1, 2))) < 1e-4, conv.name
        assert error(sums[1], (g * (y - mean) * deviation).sum((0, 1, 2))) < 1e-4, conv.name

    def check_backward(self, conv, x, gradient, slot):
        """Checks the weight gradient and returns that of the input."""
        dy = nchw(self.dy(conv, gradient, slot))
        x, padding = nchw(x), conv.kernel // 2
        wanted = torch.nn.grad.conv2d_weight(x, conv.weight.shape, dy, conv.stride, padding)
        found = self.buffers[f"{conv.name}.weight/sums"][slot].sum(0)
        row = torch.zeros(self.layout.size, device="cuda")
        row[conv.weight.start : conv.weight.start + conv.weight.length] = found
        # dy itself is rounded: a number at the middle of two may go the other way
        assert error(conv.weight.from_flat(row), wanted) < 1e-3, conv.name
        return nhwc(torch.nn.grad.conv2d_input(x.shape, self.weight(conv, slot), dy, conv.stride, padding))

    def backward(self):
        slots = range(self.engine.members)
        self.run("head")
        at = 0
        for index in reversed(range(len(self.layout.blocks))):
            block = self.layout.blocks[index]
            side, width = block.conv2.side, block.conv2.outputs
            outer, inner, free = (self.buffers[f"gradient/{side}/{(at + i) % 3}"] for i in range(3))
            for slot in slots:
                self.check_gradient_sums(block.conv2, outer[slot], slot)
            shortcut = {}
            if block.projection is not None:
                self.run(f"shortcut_sums_{width}")
                for slot in slots:
                    self.check_gradient_sums(block.projection, outer[slot], slot)
                self.run(f"project_backward_{width}")
                for slot in slots:
                    joined = self.buffers[f"blocks.{index}/joined"][slot]
                    shortcut[slot] = self.check_backward(block.projection, joined, outer[slot], slot)
                    compact = self.buffers[f"{block.projection.name}/gradient"][slot]
                    assert error(compact, shortcut[slot][:, ::2, ::2]) < 2 * BF16
                    shortcut[slot] = torch.zeros_like(shortcut[slot])
                    shortcut[slot][:, ::2, ::2] = compact.float()
            self.run(f"backward_{width}_middle")
            for slot in slots:
                x = self.normed(block.conv1, slot).relu().bfloat16()
                wanted = self.check_backward(block.conv2, x, outer[slot], slot) * (x > 0)
                assert error(inner[slot], wanted) < 2 * BF16, block.conv2.name
                self.check_gradient_sums(block.conv1, inner[slot], slot)
            self.run(f"backward_{width}_join", f"backward_{width}_down")
            at, free = (0, self.buffers[f"gradient/{2 * side}/0"]) if block.conv1.down else ((at + 2) % 3, free)
            before = self.layout.blocks[index - 1].conv2 if index else self.layout.stem
            for slot in slots:
                x = self.buffers[f"blocks.{index}/joined"][slot]
                wanted = self.check_backward(block.conv1, x, inner[slot], slot)
                if block.projection is not None:
                    wanted = wanted + shortcut[slot]
                elif block.conv1.down:
                    inputs = block.conv1.inputs
                    wanted = wanted.clone()
                    wanted[:, ::2, ::2] += outer[slot].float()[..., inputs // 2 : inputs // 2 + inputs]
                else:
                    wanted = wanted + outer[slot].float()
                assert error(free[slot], wanted * (x > 0)) < 2 * BF16, block.conv1.name
                self.check_gradient_sums(before, free[slot], slot)
        self.run("stem_backward")
        for slot in slots:
            x = self.buffers["input"][slot][..., :3]
            self.check_backward(self.layout.stem, x, self.buffers[f"gradient/32/{at}"][slot], slot)


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
    engine.place(1, before, None, momentum, SCALE, SHIFT)
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


def states_of(engine, slot):
    return {**engine.state(slot), **engine.momentum(slot)}


def assert_same(first, second):
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


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
    second.place(0, first.state(0), None, first.momentum(0), SCALE, SHIFT)
    second.train(order[:, 2:], shift[:, 2:], flip[:, 2:], rates[:, 2:], everyone(second))
    assert_same(states_of(whole, 0), states_of(second, 0))


def test_a_machine_without_a_gpu_is_told_so(data):
    with pytest.raises(EngineUnavailable, match="need an NVIDIA GPU that torch can use, not cpu"):
        FusedResNets(20, "conv", 10, data[0].cpu(), data[1].cpu(), members=1)
    with pytest.raises(ValueError, match="batch = 12"):
        FusedResNets(20, "conv", 10, *data, members=1, batch=12)
