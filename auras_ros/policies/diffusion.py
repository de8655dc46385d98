"""Diffusion Policy: an image encoder shared by cameras and time, and a denoiser over the action horizon.

Perception is the encoder; generation is `steps` calls of the network (Auras section 3, figure 4a).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.policies.denoising import Sampler
from auras_ros.policies.policy import GenerationState


class DiffusionPolicy(nn.Module):
    """encoder: [N, 3, h, w] -> [N, F]. network: (actions, timestep, condition) -> clean actions, all in [-1, 1].

    action_lower, action_upper: float64 [channels]; -1 and 1 of the network mean these (min-max normalisation).
    """

    def __init__(
        self,
        encoder: nn.Module,
        network: nn.Module,
        sampler: Sampler,
        horizon: int,
        action_lower: Tensor,
        action_upper: Tensor,
    ) -> None:
        super().__init__()
        self.encoder, self.network, self.sampler, self.horizon = encoder, network, sampler, horizon
        self._lower, self._upper = action_lower.double(), action_upper.double()

    @property
    def steps(self) -> int:
        return self.sampler.steps

    @property
    def noise_shape(self) -> tuple[int, int, int]:
        return (self.sampler.tape_length, self.horizon, len(self._lower))

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        batch, history = images.shape[:2]
        features = self.encoder(images.flatten(0, 2)).view(batch, history, -1)
        return torch.cat([features, state], -1).flatten(1)

    def begin(self, noise: Tensor) -> GenerationState:
        return GenerationState(noise[:, 0], noise[:, 1:])

    @torch.no_grad()
    def step(self, state: GenerationState, context: Tensor, index: Tensor) -> GenerationState:
        clean = self.network(state.sample, self.sampler.timesteps[index], context)
        noise = None
        if self.sampler.name == "ddpm":  # the last step's draw has weight 0; any row of the tape does
            row = index.clamp(max=state.tape.shape[1] - 1)
            noise = state.tape[torch.arange(len(index)), row]
        return GenerationState(self.sampler.step(state.sample, clean, noise, index), state.tape)

    def finish(self, state: GenerationState) -> Tensor:
        share = (state.sample.double() + 1) / 2
        return self._lower + share * (self._upper - self._lower)
