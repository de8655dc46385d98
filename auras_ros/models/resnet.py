"""ResNet18 in torchvision's layout, and the image encoder of Diffusion Policy that is made of it.

Parameter names are torchvision's (`conv1`, `bn1`, `layer1.0.conv1`, ...), so that published weights fit by name; the
classifier is left out and torchvision is not needed. Group normalisation replaces batch normalisation (Chi et al. 2023,
section 3.2), one group for 16 channels; networks that kept batch normalisation run with its statistics frozen. The
encoder neither normalises nor crops images: that is the checkpoint's preprocessing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Blocks, alone, chain

GROUP = 16  # channels of one group
LAYERS = 4
DEPTH = (2, 2, 2, 2)  # residual blocks in each layer; (3, 4, 6, 3) is ResNet34
POOLS = ("spatial_softmax", "average")
NORMS = ("group", "batch")
ACTIVATIONS = ("none", "relu")


class FrozenBatchNorm(nn.Module):
    """Batch normalisation with its running statistics, as an affine map of each channel: [N, C, h, w]."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((channels,), value))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return (x * scale[:, None, None] + shift[:, None, None]).to(x.dtype)


def _norm(channels: int, kind: str) -> nn.Module:
    return nn.GroupNorm(channels // GROUP, channels) if kind == "group" else FrozenBatchNorm(channels)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: [N, inputs, h, w] -> [N, outputs, h / stride, w / stride]."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str = "group") -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), _norm(outputs, norm)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), _norm(outputs, norm)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs, norm))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(hidden)) + shortcut)


class ResNet18(nn.Module):
    """Images [N, 3, h, w] -> feature maps [N, channels, ceil(h / 32), ceil(w / 32)].

    width: channels of the first layer (every next layer doubles them), or of all four; 64 is the published network, 16
    and 32 are small ones. depth: residual blocks of the four layers. norm: group or batch. Raises ValueError, naming
    the size.
    """

    def __init__(self, width: int | Sequence[int] = 64, depth: Sequence[int] = DEPTH, norm: str = "group") -> None:
        super().__init__()
        widths = [width * 2**layer for layer in range(LAYERS)] if isinstance(width, int) else list(width)
        _check(widths, depth, norm)
        first = widths[0]
        self.conv1, self.bn1 = nn.Conv2d(3, first, 7, 2, 3, bias=False), _norm(first, norm)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for layer, (inputs, outputs) in enumerate(zip([first, *widths], widths, strict=False)):
            blocks = [BasicBlock(inputs, outputs, 1 if layer == 0 else 2, norm)]
            blocks += [BasicBlock(outputs, outputs, 1, norm) for _ in range(depth[layer] - 1)]
            self.add_module(f"layer{layer + 1}", nn.Sequential(*blocks))
        self.channels = widths[-1]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stem(self, images: Tensor) -> Tensor:
        """The first convolution and pooling: [N, 3, h, w] -> [N, width, ceil(h / 4), ceil(w / 4)]."""
        pooled: Tensor = self.maxpool(torch.relu(self.bn1(self.conv1(images))))
        return pooled

    def blocks(self) -> Blocks:
        """The consecutive parts, by name: the stem and the residual blocks."""
        parts = [("stem", alone(self.stem))]
        for name in (f"layer{layer + 1}" for layer in range(LAYERS)):
            layer: nn.Sequential = getattr(self, name)
            parts += [(f"{name}.{i}", alone(block)) for i, block in enumerate(layer)]
        return parts

    def forward(self, images: Tensor) -> Tensor:
        return chain(self.blocks(), images)


def _check(widths: Sequence[int], depth: Sequence[int], norm: str) -> None:
    if norm not in NORMS:
        raise ValueError(f"resnet18: norm: '{norm}' is not known; known: {', '.join(NORMS)}")
    for name, sizes in (("width", widths), ("depth", depth)):
        if len(sizes) != LAYERS:
            raise ValueError(f"resnet18: {name}: {list(sizes)} is not one for each of {LAYERS} layers")
    for width in widths:
        if norm == "group" and (width < GROUP or width % GROUP):
            raise ValueError(f"resnet18: width: {width} is not a multiple of {GROUP}")


class SpatialSoftmax(nn.Module):
    """Feature maps [N, channels, h, w] -> the expected place of each keypoint, [N, 2 * keypoints]: x, y, x, y, ...

    A 1 x 1 convolution makes one map for each keypoint; its softmax over the image is a distribution over places, with
    columns and rows from -1 to 1 (Finn et al. 2016; robomimic's layout, temperature 1).
    """

    def __init__(self, channels: int, keypoints: int = 32) -> None:
        super().__init__()
        self.nets = nn.Conv2d(channels, keypoints, 1)

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack(expected_places(self.nets(features)), -1).flatten(1)


def expected_places(maps: Tensor) -> tuple[Tensor, Tensor]:
    """(x, y) of each map's soft-argmax, each [N, maps], from -1 to 1."""
    height, width = maps.shape[-2:]
    share = maps.flatten(2).softmax(-1).view(maps.shape)
    columns = torch.linspace(-1, 1, width, device=maps.device, dtype=maps.dtype)
    rows = torch.linspace(-1, 1, height, device=maps.device, dtype=maps.dtype)
    return (share.sum(2) * columns).sum(-1), (share.sum(3) * rows).sum(-1)


class AveragePool(nn.Module):
    """Feature maps [N, channels, h, w] -> [N, channels]."""

    def forward(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))


class ResNetEncoder(nn.Module):
    """Images [N, 3, h, w] -> features [N, features]: ResNet18, a pool, a linear layer (robomimic's visual core).

    pool: "spatial_softmax" over `keypoints` maps (Diffusion Policy: 32, hence 64 numbers) or "average". activation:
    after the linear layer, "none" or "relu" (LeRobot). width, depth, norm: see `ResNet18`. Raises ValueError, naming
    the size.
    """

    def __init__(
        self,
        features: int = 64,
        width: int | Sequence[int] = 64,
        pool: str = "spatial_softmax",
        keypoints: int = 32,
        depth: Sequence[int] = DEPTH,
        norm: str = "group",
        activation: str = "none",
    ) -> None:
        super().__init__()
        for name, word, words in (("pool", pool, POOLS), ("activation", activation, ACTIVATIONS)):
            if word not in words:
                raise ValueError(f"resnet18: {name}: '{word}' is not known; known: {', '.join(words)}")
        self.backbone = ResNet18(width, depth, norm)
        softmax = pool == "spatial_softmax"
        self.pool: nn.Module = SpatialSoftmax(self.backbone.channels, keypoints) if softmax else AveragePool()
        self.project = nn.Linear(2 * keypoints if softmax else self.backbone.channels, features)
        self.activation = nn.ReLU() if activation == "relu" else nn.Identity()
        self.features = features
        self.sizes = {"type": "resnet18", "features": features, "width": width, "pool": pool, "keypoints": keypoints}
        self.sizes |= {"depth": list(depth), "norm": norm, "activation": activation}

    def blocks(self) -> Blocks:
        """Consecutive parts, by name; each takes what the one before it returns."""
        return [*self.backbone.blocks(), ("head", alone(self._head))]

    def forward(self, images: Tensor) -> Tensor:
        return self._head(self.backbone(images))

    def _head(self, maps: Tensor) -> Tensor:
        features: Tensor = self.activation(self.project(self.pool(maps)))
        return features
