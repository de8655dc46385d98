"""ResNets of a few channels in torchvision's code: its own start at 11 million parameters.

`register` makes them known to torchvision by name, as LeRobot looks its backbones up. Needs torchvision.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet


class TinyResNet(ResNet):
    """torchvision's ResNet of basic blocks with other widths; nothing else differs."""

    def __init__(self, widths: tuple[int, ...], depth: tuple[int, ...], norm_layer: Any = None) -> None:
        nn.Module.__init__(self)
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = widths[0], 1, 1, 64
        self.conv1 = nn.Conv2d(3, widths[0], 7, 2, 3, bias=False)
        self.bn1, self.relu, self.maxpool = self._norm_layer(widths[0]), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        for i, (width, blocks) in enumerate(zip(widths, depth, strict=True)):
            setattr(self, f"layer{i + 1}", self._make_layer(BasicBlock, width, blocks, 1 if i == 0 else 2))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(widths[-1], 2)


def register(name: str, widths: tuple[int, ...], depth: tuple[int, ...]) -> None:
    """Make `torchvision.models.<name>` a tiny one."""

    def make(*, weights: None = None, norm_layer: Any = None, replace_stride_with_dilation: Any = None) -> ResNet:
        return TinyResNet(widths, depth, norm_layer)

    setattr(torchvision.models, name, make)


def settle(module: nn.Module) -> None:
    """Values that a trained network could have: normalisation layers that are no identity."""
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, values in module.state_dict(keep_vars=True).items():
            if name.endswith("running_mean"):
                values.normal_(0, 0.2, generator=random)
            elif name.endswith("running_var"):
                values.uniform_(0.5, 1.5, generator=random)
            elif values.dim() == 1 and values.is_floating_point():
                values.add_(torch.empty_like(values).normal_(0, 0.1, generator=random))
