"""MobileNetV2 (Sandler et al. 2018) with the strides that suit 32x32 images."""

from __future__ import annotations

from torch import Tensor, nn

from . import network

# expansion, channels, blocks, stride of the first block; the original halves the image twice more, before and in row 2
PLAN = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
STEM, LAST = 32, 1280


class InvertedResidual(nn.Module):
    """1x1 convolution that widens, depthwise 3x3, 1x1 that narrows; a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        widen = _convolution(inputs, hidden, 1) if expansion != 1 else []
        depthwise = _convolution(hidden, hidden, 3, stride, groups=hidden)
        narrow = [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*widen, *depthwise, *narrow)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y: Tensor = self.body(x)
        return x + y if self.has_shortcut else y


@network("mobilenetv2", init="kaiming_normal")
def mobilenetv2(num_classes: int = 10, in_channels: int = 3, dropout: float = 0.0) -> nn.Module:
    """MobileNetV2 for 32x32 images: 2.35M parameters on 100 classes."""
    layers = _convolution(in_channels, STEM, 3)
    inputs = STEM
    for expansion, channels, blocks, first_stride in PLAN:
        for index in range(blocks):
            layers.append(InvertedResidual(inputs, channels, 1 if index else first_stride, expansion))
            inputs = channels
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(LAST, num_classes)]
    return nn.Sequential(*layers, *_convolution(inputs, LAST, 1), *head)


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]
