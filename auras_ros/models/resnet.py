"""ResNet18 in torchvision's layout with group normalisation, and the image encoder that Diffusion Policy makes of it.

Parameter names are torchvision's (`conv1`, `bn1`, `layer1.0.conv1`, ...), so that published weights fit by name; the
classifier is left out and torchvision is not needed. Group normalisation stands where batch normalisation stood
(Chi et al. 2023, section 3.2), one group for 16 channels. The encoder never normalises pixels nor crops: that is the
checkpoint's preprocessing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

GROUP = 16  # channels of one group
DEPTH = 2  # residual blocks in each of the four layers
POOLS = ("spatial_softmax", "average")


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // GROUP, channels)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut: [N, inputs, h, w] -> [N, outputs, h / stride, w / stride]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), _norm(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), _norm(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(hidden)) + shortcut)


class ResNet18(nn.Module):
    """Images [N, 3, h, w] -> feature maps [N, 8 * width, ceil(h / 32), ceil(w / 32)].

    `width`: channels of the first layer; 64 is the published network, 16 and 32 are small ones.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        if width < GROUP or width % GROUP:
            raise ValueError(f"resnet18: width: {width} is not a multiple of {GROUP}")
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), _norm(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._layer(width, width, 1)
        self.layer2 = self._layer(width, 2 * width, 2)
        self.layer3 = self._layer(2 * width, 4 * width, 2)
        self.layer4 = self._layer(4 * width, 8 * width, 2)
        self.channels = 8 * width
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
        rest = [BasicBlock(outputs, outputs, 1) for _ in range(DEPTH - 1)]
        return nn.Sequential(BasicBlock(inputs, outputs, stride), *rest)

    def stem(self, images: Tensor) -> Tensor:
        """The first convolution and pooling: [N, 3, h, w] -> [N, width, ceil(h / 4), ceil(w / 4)]."""
        pooled: Tensor = self.maxpool(torch.relu(self.bn1(self.conv1(images))))
        return pooled

    def blocks(self) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
        """The parts that follow one another, by name: the stem and eight residual blocks."""
        parts: list[tuple[str, Callable[[Tensor], Tensor]]] = [("stem", self.stem)]
        for name in ("layer1", "layer2", "layer3", "layer4"):
            layer: nn.Sequential = getattr(self, name)
            parts += [(f"{name}.{i}", block) for i, block in enumerate(layer)]
        return parts

    def forward(self, images: Tensor) -> Tensor:
        x = images
        for _, block in self.blocks():
            x = block(x)
        return x


class SpatialSoftmax(nn.Module):
    """Feature maps [N, channels, h, w] -> the expected place of each keypoint, [N, 2 * keypoints]: x, y, x, y, ...

    A 1 x 1 convolution makes one map for each keypoint; its softmax over the image is a distribution over places,
    columns and rows counted from -1 to 1 (Finn et al. 2016; robomimic's layout, temperature 1).
    """

    def __init__(self, channels: int, keypoints: int = 32) -> None:
        super().__init__()
        self.nets = nn.Conv2d(channels, keypoints, 1)

    def forward(self, features: Tensor) -> Tensor:
        maps = self.nets(features)
        height, width = maps.shape[-2:]
        share = maps.flatten(2).softmax(-1).view(maps.shape)
        columns = torch.linspace(-1, 1, width, device=maps.device, dtype=maps.dtype)
        rows = torch.linspace(-1, 1, height, device=maps.device, dtype=maps.dtype)
        x, y = (share.sum(2) * columns).sum(-1), (share.sum(3) * rows).sum(-1)
        return torch.stack([x, y], -1).flatten(1)


class AveragePool(nn.Module):
    """Feature maps [N, channels, h, w] -> [N, channels]."""

    def forward(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))


class ResNetEncoder(nn.Module):
    """Images [N, 3, h, w] -> features [N, features]: ResNet18, a pool, a linear layer (robomimic's visual core).

    pool: "spatial_softmax" over `keypoints` maps (Diffusion Policy: 32, hence 64 numbers) or "average".
    Raises ValueError, naming the size.
    """

    def __init__(self, features: int = 64, width: int = 64, pool: str = "spatial_softmax", keypoints: int = 32) -> None:
        super().__init__()
        if pool not in POOLS:
            raise ValueError(f"resnet18: pool: '{pool}' is not known; there is {', '.join(POOLS)}")
        self.backbone = ResNet18(width)
        softmax = pool == "spatial_softmax"
        self.pool: nn.Module = SpatialSoftmax(self.backbone.channels, keypoints) if softmax else AveragePool()
        self.project = nn.Linear(2 * keypoints if softmax else self.backbone.channels, features)
        self.features = features
        self.sizes = {"type": "resnet18", "features": features, "width": width, "pool": pool, "keypoints": keypoints}

    def blocks(self) -> list[tuple[str, Callable[..., tuple[Tensor, ...]]]]:
        """Parts that follow one another, by name; each takes what the one before it returns."""
        return [*((name, _alone(block)) for name, block in self.backbone.blocks()), ("head", _alone(self._head))]

    def forward(self, images: Tensor) -> Tensor:
        return self._head(self.backbone(images))

    def _head(self, maps: Tensor) -> Tensor:
        features: Tensor = self.project(self.pool(maps))
        return features


def _alone(block: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """A block that hands on one tensor, as a block that hands on a tuple."""

    def run(x: Tensor) -> tuple[Tensor, ...]:
        return (block(x),)

    return run
