"""Training loops of the diffusion policies: encoders on simulator keypoints, then the denoiser on frozen features.

Loops count steps, not seconds, so that a seed gives the same run on any machine up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.policies.denoising import TRAINING_STEPS, add_noise, squared_cosine_alphas
from auras_ros.policies.flow_sampler import TIMESTEPS
from auras_ros.report.result import Say
from auras_ros.train.demonstrations import Demonstrations
from auras_ros.train.loops import REPORT_STEPS, Curve, cosine_share, fit
from auras_ros.train.task import PIXEL_MEAN, PIXEL_STD, TrainingTask

HORIZON = 16
WHITENING_FRAMES = 4096
BATCH = 128  # windows a step of the denoiser
FEATURE_NOISE = 0.02  # the denoiser must bear the encoder's error on unseen images


def pixels(images: Tensor) -> Tensor:
    """uint8 [N, H, W, 3] -> the policy's input [N, 3, H, W]: the batched twin of the checkpoint's preprocessing."""
    return ((images.permute(0, 3, 1, 2).float() * (1 / 255)) - PIXEL_MEAN) / PIXEL_STD  # channels-last in memory


def train_encoder(
    encoder: KeypointEncoder,
    task: TrainingTask,
    data: Demonstrations,
    camera: int,
    steps: int,
    peak: float,
    curve: Curve,
    progress: Say,
) -> None:
    """Regress keypoints from single images of one camera, then fix the whitening of the features."""
    images, targets = torch.from_numpy(data.images[:, camera]), task.keypoints(data)
    size, unit = task.keypoint_size, task.keypoint_unit
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    check = torch.arange(0, len(images), max(1, len(images) // 500))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=peak, weight_decay=1e-4)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = peak * cosine_share(step, steps, warmup=50)
        batch = torch.randint(0, len(images), (64,))
        loss = F.smooth_l1_loss(encoder.keypoints(pixels(images[batch])), targets[batch], beta=0.02)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % REPORT_STEPS == 0:
            with torch.no_grad():
                error = float((encoder.keypoints(pixels(images[check])) - targets[check]).abs().mean() * size)
            curve.add(step + 1, float(loss.detach()), **{f"error_{unit}": error})
            progress(f"encoder step {step + 1}/{steps}, mean keypoint error {error:.2f} {unit}")
    encoder.fit_whitening(raw_features(encoder, images[:: max(1, len(images) // WHITENING_FRAMES)]))


@torch.no_grad()
def raw_features(encoder: KeypointEncoder, images: Tensor) -> Tensor:
    """Unwhitened features of uint8 images, [N, F]."""
    return torch.cat([encoder.raw(pixels(images[i : i + 128])) for i in range(0, len(images), 128)])


@dataclass(frozen=True)
class Windows:
    """Training windows over episodes: the observed frame before (the first repeats itself), and the next HORIZON
    actions (the last repeats itself). features: of all cameras, one after another."""

    features: Tensor
    state: Tensor
    actions: Tensor
    previous: Tensor
    last: Tensor

    @classmethod
    def of(cls, encoders: Sequence[KeypointEncoder], task: TrainingTask, data: Demonstrations) -> Windows:
        """encoders: one for each camera."""
        count = len(data.episode)
        change = np.flatnonzero(np.diff(data.episode)) + 1
        starts, ends = np.r_[0, change], np.r_[change, count]
        lengths = ends - starts
        first, last = np.repeat(starts, lengths), np.repeat(ends - 1, lengths)
        features = [
            (raw_features(encoder, torch.from_numpy(data.images[:, camera])) - encoder.feature_mean)
            / encoder.feature_std
            for camera, encoder in enumerate(encoders)
        ]
        return cls(
            features=torch.cat(features, 1),
            state=torch.from_numpy(task.scaled_state(data.state)).float(),
            actions=torch.from_numpy(task.scaled_actions(data.actions)).float(),
            previous=torch.from_numpy(np.maximum(np.arange(count) - task.lag, first)),
            last=torch.from_numpy(last),
        )

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """(condition [B, 2 (F + S)], actions [B, HORIZON, channels]) at random frames."""
        now = torch.randint(0, len(self.features), (size,))
        before = self.previous[now]
        window = torch.minimum(now[:, None] + torch.arange(HORIZON), self.last[now][:, None])
        noise = FEATURE_NOISE * torch.randn(2, size, self.features.shape[1])
        condition = [
            self.features[before] + noise[0],
            self.state[before],
            self.features[now] + noise[1],
            self.state[now],
        ]
        return torch.cat(condition, 1), self.actions[window]


def train_denoiser(
    network: ConditionalUnet1d,
    windows: Windows,
    steps: int,
    peak: float,
    curve: Curve,
    progress: Say,
    noise_levels: int = TRAINING_STEPS,
) -> nn.Module:
    """Predict clean actions from noisy ones; returns the exponential moving average of the weights. noise_levels: from
    so many; it is what a checkpoint calls `training_steps`."""
    alphas = squared_cosine_alphas(noise_levels)

    def loss() -> Tensor:
        condition, clean = windows.batch(BATCH)
        timestep = torch.randint(0, noise_levels, (len(clean),))
        noisy = add_noise(clean, torch.randn_like(clean), timestep, alphas)
        return F.mse_loss(network(noisy, timestep, condition), clean)

    optimizer = torch.optim.AdamW(network.parameters(), lr=peak, weight_decay=1e-5)
    return fit(network, [optimizer], loss, steps, 100, curve, lambda text: progress(f"denoiser {text}"))


def train_flow(
    network: ConditionalUnet1d, windows: Windows, steps: int, peak: float, curve: Curve, progress: Say
) -> nn.Module:
    """Predict the velocity, noise - actions, at any place of the straight path between both; returns the moving average
    of the weights."""

    def loss() -> Tensor:
        condition, clean = windows.batch(BATCH)
        noise, time = torch.randn_like(clean), torch.rand(len(clean))
        sample = clean + time[:, None, None] * (noise - clean)
        return F.mse_loss(network(sample, TIMESTEPS * time, condition), noise - clean)

    optimizer = torch.optim.AdamW(network.parameters(), lr=peak, weight_decay=1e-5)
    return fit(network, [optimizer], loss, steps, 100, curve, lambda text: progress(f"flow {text}"))
