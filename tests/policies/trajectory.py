"""Whole denoising trajectories with a stand-in for the network, once by the sampler, once by the papers' equations."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from auras_ros.policies.denoising import Sampler

SHAPE = (6, 2)  # horizon, channels
Predict = Callable[[Tensor, Tensor], Tensor]
PUBLISHED = [
    *(("ddpm", steps, prediction, steps) for steps in (40, 100, 160) for prediction in ("sample", "epsilon")),
    *(("ddim", steps, "epsilon", 100) for steps in (1, 7, 8, 16, 100)),
    ("ddim", 8, "sample", 100),
    ("ddim", 16, "epsilon", 40),
]


def network(x: Tensor, timestep: Tensor) -> Tensor:
    """Rows [B, H, A] at timesteps [B] -> a bounded prediction that depends on both, and not only smoothly."""
    mix = torch.tensor([[1.1, -0.7], [0.4, 1.6]], dtype=x.dtype)
    return 1.3 * torch.tanh(x @ mix + torch.sin(timestep.to(x.dtype) / 9)[:, None, None])


def tape(sampler: Sampler, rows: int, seed: int = 1) -> Tensor:
    """[rows, tape, horizon, channels], drawn one after the other, as a scheduler draws while it runs."""
    random = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randn(rows, *SHAPE, generator=random) for _ in range(sampler.tape_length)], 1)


def sampled(sampler: Sampler, noise: Tensor, predict: Predict = network) -> list[Tensor]:
    """The samples after each step, all rows at the same one; the noise as DiffusionPolicy draws it from its tape."""
    sample, path = noise[:, 0], []
    for i in range(sampler.steps):
        index = torch.full((len(noise),), i)
        draw = noise[:, min(i + 1, sampler.steps - 1)] if sampler.name == "ddpm" else None
        sample = sampler.step(sample, predict(sample, sampler.timesteps[index]), draw, index)
        path.append(sample)
    return path


def written_out(name: str, prediction: str, timesteps: list[int], training_steps: int, noise: Tensor) -> list[Tensor]:
    """The same in float64 from the papers alone: Ho et al. 2020 eq. 6, 7 and 15; Song et al. 2021 eq. 12.

    Clipped to [-1, 1] as the published schedulers clip: DDPM's mean uses the clipped clean actions; DDIM's direction
    uses the predicted noise as it is ("epsilon"), or the noise that the clipped clean actions imply ("sample").
    """

    def f(t: float) -> float:
        return math.cos((t / training_steps + 0.008) / 1.008 * math.pi / 2) ** 2

    share, shares = 1.0, [1.0]  # shares[t + 1]: the signal left at timestep t
    for t in range(training_steps):
        share *= 1 - min(1 - f(t + 1) / f(t), 0.999)
        shares.append(share)
    x, path = noise[:, 0].double(), []
    for i, t in enumerate(timesteps):
        now, after = shares[t + 1], shares[timesteps[i + 1] + 1] if i + 1 < len(timesteps) else 1.0
        predicted = network(x, torch.full((len(x),), t))
        clean, epsilon = predicted, predicted
        if prediction == "epsilon":
            clean = (x - math.sqrt(1 - now) * epsilon) / math.sqrt(now)
        clean = clean.clamp(-1, 1)
        if prediction == "sample":
            epsilon = (x - math.sqrt(now) * clean) / math.sqrt(1 - now)
        if name == "ddim":
            x = math.sqrt(after) * clean + math.sqrt(1 - after) * epsilon
        else:
            beta = 1 - now / after
            mean = math.sqrt(after) * beta * clean + math.sqrt(now / after) * (1 - after) * x
            x = mean / (1 - now)
            if i + 1 < len(timesteps):
                x = x + math.sqrt((1 - after) / (1 - now) * beta) * noise[:, i + 1].double()
        path.append(x)
    return path
