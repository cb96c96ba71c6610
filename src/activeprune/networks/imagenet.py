"""Networks that timm keeps: ResNet-50 and ViT-B/16."""

from __future__ import annotations

from torch import nn

from ..core.errors import InputError
from ..extras import need
from . import network

PATCH = 16


@network("resnet50")
def resnet50(num_classes: int = 1000, pretrained: bool = False) -> nn.Module:
    """ResNet-50 for ImageNet (timm): 25.56M parameters on 1000 classes."""
    model: nn.Module = need("timm").create_model("resnet50", pretrained=pretrained, num_classes=num_classes)
    return model


@network("vit_b16")
def vit_b16(num_classes: int = 10, resolution: int = 384, pretrained: bool = False) -> nn.Module:
    """ViT-B/16 (timm): 86M parameters; resolution 384 as in the paper, or any multiple of 16."""
    if resolution < PATCH or resolution % PATCH:
        raise InputError(f"resolution = {resolution}: ViT-B/16 needs a multiple of {PATCH}")
    name = "vit_base_patch16_224" if resolution <= 224 else "vit_base_patch16_384"
    model: nn.Module = need("timm").create_model(
        name, pretrained=pretrained, num_classes=num_classes, img_size=resolution
    )
    return model
