"""Every kernel of the fused engine, compared with what torch makes of the numbers that it read."""

from __future__ import annotations

import torch
import torch.nn.functional as F

BF16 = 4e-3  # relative error of one rounding to bf16, with room


def error(found, wanted):
    found, wanted = found.double().flatten(), wanted.double().flatten()
    assert torch.isfinite(found).all()
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))


def nchw(x):
    return x.float().permute(0, 3, 1, 2).contiguous()


def nhwc(x):
    return x.permute(0, 2, 3, 1)


class Probe:
    """One engine, driven launch by launch; `check` compares a kernel with torch on the very numbers that it read."""

    def __init__(self, engine):
        self.engine, self.layout, self.buffers = engine, engine.layout, engine.buffers
        self.launches = zip(*(branch.launches for branch in engine._launches[True]), strict=True)

    def poison(self):
        """What is not written must be seen."""
        for name, buffer in self.buffers.items():
            if buffer.is_floating_point() and name != "correction":
                buffer.fill_(float("nan"))

    def run(self, *names):
        for step in next(self.launches):  # of every branch
            assert step.kernel in names, (step.kernel, names)
            step.launch(False)

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
        row = torch.zeros(self.layout.size, device=self.engine.device)
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
