"""Denoising samplers over an action chunk: DDPM and DDIM on the squared-cosine schedule of Diffusion Policy.

A sampler is a fixed list of steps; step i is a pure function of (noisy actions, predicted clean actions, noise), so
that rows standing at different steps can share one batch. It never calls the network itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

SamplerName = Literal["ddim", "ddpm"]
TRAINING_STEPS = 100
MAX_BETA = 0.999


def squared_cosine_alphas(steps: int = TRAINING_STEPS) -> Tensor:
    """Cumulative signal shares of the `squaredcos_cap_v2` schedule, float64 [steps], decreasing."""

    def level(t: float) -> float:
        return math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [min(1 - level((i + 1) / steps) / level(i / steps), MAX_BETA) for i in range(steps)]
    return torch.cumprod(1 - torch.tensor(betas, dtype=torch.float64), 0)


def add_noise(clean: Tensor, noise: Tensor, timestep: Tensor, alphas: Tensor) -> Tensor:
    """Diffuse clean actions [B, H, A] to `timestep` [B]."""
    alpha = alphas[timestep].to(clean.dtype)[:, None, None]
    return alpha.sqrt() * clean + (1 - alpha).sqrt() * noise


@dataclass(frozen=True)
class Sampler:
    """Coefficients of `steps` denoising steps, each row used at its own step.

    The network predicts the clean actions. x' = to_clean * clean + to_noisy * x + to_noise * noise, where DDIM
    (eta 0) needs no noise and DDPM uses the posterior variance. The last step returns the clean actions.
    """

    name: SamplerName
    timesteps: Tensor  # int64 [steps], decreasing
    to_clean: Tensor  # float32 [steps]
    to_noisy: Tensor
    to_noise: Tensor
    clip: float = 1.0

    @property
    def steps(self) -> int:
        return len(self.timesteps)

    @property
    def tape_length(self) -> int:
        """How many noise draws one request needs: the start, and one a step but the last for DDPM."""
        return self.steps if self.name == "ddpm" else 1

    def step(self, noisy: Tensor, clean: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """One step for rows [B, H, A]; `index` int64 [B] says at which step each row stands."""
        clean = clean.clamp(-self.clip, self.clip)
        shape = (-1, 1, 1)
        out = self.to_clean[index].view(shape) * clean + self.to_noisy[index].view(shape) * noisy
        return out if noise is None else out + self.to_noise[index].view(shape) * noise


def make_sampler(name: SamplerName, steps: int) -> Sampler:
    """A sampler by name. DDPM runs all training steps; DDIM any number from 1 to 100."""
    if name not in ("ddim", "ddpm"):
        raise ValueError(f"sampler must be 'ddim' or 'ddpm', got {name!r}")
    if type(steps) is not int or not 1 <= steps <= TRAINING_STEPS:
        raise ValueError(f"{name}: steps must be a whole number in [1, {TRAINING_STEPS}], got {steps!r}")
    if name == "ddpm" and steps != TRAINING_STEPS:
        raise ValueError(f"ddpm runs all {TRAINING_STEPS} training steps, got steps = {steps}; use ddim for fewer")
    alphas = squared_cosine_alphas()
    timesteps = torch.linspace(TRAINING_STEPS - 1, 0, steps, dtype=torch.float64).round().long()
    alpha = alphas[timesteps]
    after = torch.cat([alphas[timesteps[1:]], torch.ones(1, dtype=torch.float64)])
    if name == "ddim":  # Song et al. 2021, eq. 12 with sigma 0, written in terms of the clean prediction
        to_noisy = ((1 - after) / (1 - alpha)).sqrt()
        to_clean = after.sqrt() - to_noisy * alpha.sqrt()
        to_noise = torch.zeros_like(alpha)
    else:  # Ho et al. 2020, eq. 7
        beta = 1 - alpha / after
        to_clean = after.sqrt() * beta / (1 - alpha)
        to_noisy = (1 - beta).sqrt() * (1 - after) / (1 - alpha)
        to_noise = (beta * (1 - after) / (1 - alpha)).clamp_min(0).sqrt()
    return Sampler(name, timesteps, to_clean.float(), to_noisy.float(), to_noise.float())
