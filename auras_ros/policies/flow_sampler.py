"""Flow matching over an action chunk: Euler steps along a learned velocity, from noise to actions.

It stands where a denoising sampler does (`denoising.Sampler`), with the same networks: step i is a pure function of the
sample and the network's prediction, and rows at different steps can share one batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from auras_ros.policies.denoising import MAX_TRAINING_STEPS
from auras_ros.policies.guidance import FlowTime

VELOCITY = "velocity"  # what the network predicts: noise - actions
TIMESTEPS = 100.0  # what the network is told for time 1, noise; time 0 are actions


class FlowSampler(nn.Module):
    """`steps` Euler steps on straight paths, sample = (1 - time) actions + time noise (Lipman et al. 2023). The actions
    that a velocity implies are clipped in each step, as those of a denoising one."""

    name, prediction, tape_length = "flow", VELOCITY, 1
    timesteps: Tensor  # float32 [steps], decreasing
    times: Tensor

    def __init__(self, steps: int, clip: float = 1.0) -> None:
        """clip: their bound. Raises ValueError."""
        super().__init__()
        if type(steps) is not int or not 1 <= steps <= MAX_TRAINING_STEPS:
            raise ValueError(f"flow: steps must be a whole number in [1, {MAX_TRAINING_STEPS}], got {steps!r}")
        self._steps, self.clip = steps, clip
        times = 1 - torch.arange(steps, dtype=torch.float64) / steps
        self.register_buffer("timesteps", (TIMESTEPS * times).float(), persistent=False)
        self.register_buffer("times", times.float(), persistent=False)

    @property
    def steps(self) -> int:
        return self._steps

    def clean(self, noisy: Tensor, predicted: Tensor, index: Tensor) -> Tensor:
        """The actions [B, H, A] that a prediction implies, clipped."""
        return (noisy - self._time(index) * predicted).clamp(-self.clip, self.clip)

    def step(
        self, noisy: Tensor, predicted: Tensor, noise: Tensor | None, index: Tensor, shift: Tensor | None = None
    ) -> Tensor:
        """One step for rows [B, H, A]; `index` int64 [B]: each row's own step. shift [B, H, A] moves the expected
        actions. noise is not used."""
        clean = self.clean(noisy, predicted, index)
        if shift is not None:
            clean = (clean + shift).clamp(-self.clip, self.clip)
        last = (index == self._steps - 1).view(-1, 1, 1)
        return torch.where(last, clean, noisy + (clean - noisy) / (self._steps * self._time(index)))

    def flow_time(self, index: Tensor) -> FlowTime:
        time = 1 - self.times[index]
        return FlowTime(time, torch.ones_like(time))

    def _time(self, index: Tensor) -> Tensor:
        return self.times[index].view(-1, 1, 1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FlowSampler:
        """Follow the module that holds this to its device, but not to its type."""
        device = fn(torch.empty(0, device=self.times.device)).device
        self._buffers.update({name: table.to(device) for name, table in self._buffers.items() if table is not None})
        return self
