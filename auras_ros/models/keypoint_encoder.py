"""A small image encoder that locates things: convolutions, then the soft-argmax of each feature map.

It is trained on simulator keypoints first, then frozen (train/stages.py), so that the denoiser's inputs do not change
during its training. It never normalises pixels: that is the checkpoint's preprocessing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.blocks import Blocks, alone
from auras_ros.models.resnet import expected_places


def _block(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()
    )


class KeypointEncoder(nn.Module):
    """Images [B, 3, H, W] (preprocessed floats) -> whitened features [B, features].

    widths: channels of the three scales. maps: feature maps whose soft-argmax is taken. targets: size of the
    auxiliary regression head used in training (keypoint coordinates in [-1, 1]).
    """

    def __init__(
        self, features: int = 64, widths: tuple[int, int, int] = (16, 32, 48), maps: int = 32, targets: int = 18
    ) -> None:
        super().__init__()
        low, middle, high = widths
        self.fine = nn.Sequential(
            _block(3, low, 5, 2), _block(low, middle, 3, 2), _block(middle, middle, 3, 1), _block(middle, high, 3, 1)
        )
        self.coarse = nn.Sequential(_block(high, high, 3, 2), _block(high, high, 3, 1))
        self.maps = nn.Conv2d(2 * high, maps, 1)
        self.project = nn.Sequential(nn.Linear(2 * maps, 256), nn.ReLU(), nn.Linear(256, features))
        self.auxiliary = nn.Linear(features, targets)
        self.register_buffer("feature_mean", torch.zeros(features))
        self.register_buffer("feature_std", torch.ones(features))
        self.features = features
        self.sizes = {"features": features, "widths": list(widths), "maps": maps, "targets": targets}

    def raw(self, images: Tensor) -> Tensor:
        """Features before whitening, [B, features]."""
        return self._locate(*self._look_wider(self.fine(images)))

    def blocks(self) -> Blocks:
        """Consecutive parts, by name; each takes what the one before it returns. Together: `forward`."""
        fine = [(f"fine.{i}", alone(block)) for i, block in enumerate(self.fine)]
        return [*fine, ("coarse", self._look_wider), ("head", self._whitened)]

    def _look_wider(self, fine: Tensor) -> tuple[Tensor, Tensor]:
        """The fine maps, and the coarse ones at the same size."""
        return fine, F.interpolate(self.coarse(fine), size=fine.shape[-2:])

    def _locate(self, fine: Tensor, coarse: Tensor) -> Tensor:
        maps = self.maps(torch.cat([fine, coarse], 1))
        features: Tensor = self.project(torch.cat(expected_places(maps), 1))
        return features

    def keypoints(self, images: Tensor) -> Tensor:
        """The auxiliary regression, [B, targets] in [-1, 1] image coordinates. Training only."""
        points: Tensor = self.auxiliary(self.raw(images))
        return points

    def forward(self, images: Tensor) -> Tensor:
        return self._whitened(*self._look_wider(self.fine(images)))[0]

    def _whitened(self, fine: Tensor, coarse: Tensor) -> tuple[Tensor]:
        return ((self._locate(fine, coarse) - self.feature_mean) / self.feature_std,)

    def fit_whitening(self, raw: Tensor) -> None:
        """Set mean and spread from raw features [N, features] of the training set."""
        self.feature_mean = raw.mean(0)
        self.feature_std = raw.std(0) + 1e-3
