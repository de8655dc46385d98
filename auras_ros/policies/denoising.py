"""Denoising samplers over an action chunk: DDPM and DDIM on the squared-cosine schedule of Diffusion Policy.

A sampler is a fixed list of steps; step i is a pure function of (noisy actions, the network's prediction, noise), so
that rows at different steps can share one batch. It never calls the network itself. All its tables move with the module
that holds it, and a step neither reads a value back nor branches on one: it can be captured and replayed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from auras_ros.policies.guidance import FlowTime

SamplerName = Literal["ddim", "ddpm"]
Prediction = Literal["sample", "epsilon"]
Spacing = Literal["linspace", "leading"]
TRAINING_STEPS = 100
MAX_TRAINING_STEPS = 1000
MAX_BETA = 0.999


def squared_cosine_alphas(steps: int = TRAINING_STEPS) -> Tensor:
    """Cumulative signal shares of the `squaredcos_cap_v2` schedule, float64 [steps], decreasing.

    Nichol and Dhariwal 2021, eq. 17. It has no beta_start and no beta_end: this schedule does not use the 1e-4 and 0.02
    of published configurations.
    """

    def level(t: float) -> float:
        return math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2

    betas = [min(1 - level((i + 1) / steps) / level(i / steps), MAX_BETA) for i in range(steps)]
    return torch.cumprod(1 - torch.tensor(betas, dtype=torch.float64), 0)


def add_noise(clean: Tensor, noise: Tensor, timestep: Tensor, alphas: Tensor) -> Tensor:
    """Diffuse clean actions [B, H, A] to `timestep` [B]."""
    alpha = alphas[timestep].to(clean.dtype)[:, None, None]
    return alpha.sqrt() * clean + (1 - alpha).sqrt() * noise


class DenoisingState(NamedTuple):
    """What denoising carries from step to step: the sample [B, H, A] and the rest of its noise tape [B, T, H, A]."""

    sample: Tensor
    tape: Tensor


class Sampler(nn.Module):
    """Coefficients of `steps` denoising steps; each row uses those of its own step.

    prediction: what the network predicts: the clean actions ("sample") or the noise in the noisy ones ("epsilon"). x' =
    to_clean * clean + to_noisy * x + to_predicted * prediction + to_noise * noise, where `clean` is clipped, DDIM (eta
    0) needs no noise and DDPM uses the posterior variance (`fixed_small`). The last step returns the clean actions.
    DDIM moves towards the predicted noise. If the network predicts noise, it is not corrected for the clipping, as
    published (`to_predicted`). If it predicts clean actions, the noise follows from the clipped ones (`corrected`, in
    `to_noisy`), or from the unclipped ones, as published.
    """

    timesteps: Tensor  # int64 [steps], decreasing; the tables below are float32 [steps]
    to_clean: Tensor
    to_noisy: Tensor
    to_predicted: Tensor
    to_noise: Tensor
    clean_of_noisy: Tensor  # clean = clean_of_noisy * x - clean_of_epsilon * epsilon
    clean_of_epsilon: Tensor

    def __init__(
        self,
        name: SamplerName,
        prediction: Prediction,
        timesteps: Tensor,
        alphas: Tensor,
        clip: float = 1.0,
        corrected: bool = True,
    ) -> None:
        super().__init__()
        self._direct = name == "ddim" and (prediction == "epsilon" or not corrected)
        self.name, self.prediction, self.clip, self._steps = name, prediction, clip, len(timesteps)
        self.register_buffer("timesteps", timesteps, persistent=False)
        for table, values in _tables(name, prediction, timesteps, alphas, corrected).items():
            self.register_buffer(table, values.float(), persistent=False)

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def tape_length(self) -> int:
        """Noise draws of one request: the start, and for DDPM one for each step but the last."""
        return self.steps if self.name == "ddpm" else 1

    def clean(self, noisy: Tensor, predicted: Tensor, index: Tensor) -> Tensor:
        """The clean actions [B, H, A] that a prediction implies, clipped."""
        shape = (-1, 1, 1)
        clean = predicted
        if self.prediction == "epsilon":
            clean = self.clean_of_noisy[index].view(shape) * noisy
            clean = clean - self.clean_of_epsilon[index].view(shape) * predicted
        return clean.clamp(-self.clip, self.clip)

    def step(
        self, noisy: Tensor, predicted: Tensor, noise: Tensor | None, index: Tensor, shift: Tensor | None = None
    ) -> Tensor:
        """One step for rows [B, H, A]; `index` int64 [B]: each row's own step. shift [B, H, A]: moves the expected
        clean actions, and the noise in the sample is then the rest."""
        shape = (-1, 1, 1)
        clean = self.clean(noisy, predicted, index)
        if shift is not None:
            moved = (clean + shift).clamp(-self.clip, self.clip)
            apart = 1 if self.prediction == "sample" else -1 / self.clean_of_epsilon[index].view(shape)
            predicted, clean = predicted + apart * (moved - clean), moved
        out = self.to_clean[index].view(shape) * clean
        if self._direct:
            out = out + self.to_predicted[index].view(shape) * predicted
        if not self._direct or self.prediction == "sample":
            out = out + self.to_noisy[index].view(shape) * noisy
        return out if noise is None else out + self.to_noise[index].view(shape) * noise

    def flow_time(self, index: Tensor) -> FlowTime:
        """noisy = signal * clean + noise * epsilon, divided by signal + noise, lies on a straight path."""
        ratio = self.clean_of_epsilon[index]  # noise / signal
        signal = 1 / self.clean_of_noisy[index]
        return FlowTime(1 / (1 + ratio), signal * (1 + ratio))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Sampler:
        """Follow the module that holds this to its device, but not to its type: half would spoil the tables."""
        device = fn(torch.empty(0, device=self.to_clean.device)).device
        self._buffers.update({name: table.to(device) for name, table in self._buffers.items() if table is not None})
        return self


def _tables(
    name: SamplerName, prediction: Prediction, timesteps: Tensor, alphas: Tensor, corrected: bool
) -> dict[str, Tensor]:
    """The coefficients at each of `timesteps`, float64, from the cumulative signal shares `alphas`."""
    alpha = alphas[timesteps]
    after = torch.cat([alphas[timesteps[1:]], torch.ones(1, dtype=torch.float64)])
    none = torch.zeros_like(alpha)
    tables = {"clean_of_noisy": alpha.rsqrt(), "clean_of_epsilon": ((1 - alpha) / alpha).sqrt()}
    if name == "ddpm":  # Ho et al. 2020, eq. 7
        beta = 1 - alpha / after
        to_noise = (beta * (1 - after) / (1 - alpha)).clamp_min(0).sqrt()
        to_noisy = (1 - beta).sqrt() * (1 - after) / (1 - alpha)
        to_clean = after.sqrt() * beta / (1 - alpha)
        return {**tables, "to_clean": to_clean, "to_noisy": to_noisy, "to_predicted": none, "to_noise": to_noise}
    if prediction == "epsilon":  # Song et al. 2021, eq. 12 with sigma 0
        to_epsilon = (1 - after).sqrt()
        return {**tables, "to_clean": after.sqrt(), "to_noisy": none, "to_predicted": to_epsilon, "to_noise": none}
    to_noisy = ((1 - after) / (1 - alpha)).sqrt()  # the same, written in terms of the clean prediction
    direction = -to_noisy * alpha.sqrt()
    shares = (after.sqrt() + direction, none) if corrected else (after.sqrt(), direction)
    return {**tables, "to_clean": shares[0], "to_noisy": to_noisy, "to_predicted": shares[1], "to_noise": none}


def make_sampler(
    name: SamplerName,
    steps: int,
    prediction: Prediction = "sample",
    training_steps: int = TRAINING_STEPS,
    spacing: Spacing = "linspace",
    clip: float | None = 1.0,
    corrected: bool = True,
) -> Sampler:
    """A sampler by name. DDIM runs any number of steps from 1 to all training steps; DDPM all, or fewer if `spacing` is
    "leading", as in published code.

    training_steps: how many steps the network was trained with. spacing: which of them DDIM uses: evenly from the last
    to the first ("linspace"), or the multiples of training_steps // steps ("leading", the default of diffusers and so
    of published policies). clip: bound of the clean actions at every step, None for none. corrected: see `Sampler`.
    Raises ValueError, naming the value.
    """
    _known("sampler", name, SamplerName)
    _known("prediction", prediction, Prediction)
    _known("spacing", spacing, Spacing)
    if type(training_steps) is not int or not 2 <= training_steps <= MAX_TRAINING_STEPS:
        raise ValueError(f"training_steps must be a whole number in [2, {MAX_TRAINING_STEPS}], got {training_steps!r}")
    if type(steps) is not int or not 1 <= steps <= training_steps:
        raise ValueError(f"{name}: steps must be a whole number in [1, {training_steps}], got {steps!r}")
    if type(corrected) is not bool:
        raise ValueError(f"corrected must be true or false, got {corrected!r}")
    if clip is not None and (isinstance(clip, bool) or not isinstance(clip, int | float) or not 0 < clip < math.inf):
        raise ValueError(f"clip must be a number above zero or null, got {clip!r}")
    if name == "ddpm" and steps != training_steps and spacing != "leading":
        raise ValueError(f"ddpm runs all {training_steps} training steps, got steps = {steps}; use ddim for fewer")
    if spacing == "leading":
        timesteps = torch.arange(steps - 1, -1, -1) * (training_steps // steps)
    else:
        timesteps = torch.linspace(training_steps - 1, 0, steps, dtype=torch.float64).round().long()
    bound = math.inf if clip is None else float(clip)
    return Sampler(name, prediction, timesteps, squared_cosine_alphas(training_steps), bound, corrected)


def _known(what: str, value: object, choices: Any) -> None:
    names = get_args(choices)
    if value not in names:
        raise ValueError(f"{what} must be {' or '.join(map(repr, names))}, got {value!r}")
