"""Diffusion Policy: an image encoder shared by cameras and time, and a denoiser over the action horizon.

Perception is the encoder; generation is `steps` calls of the network (Auras equation 2, figure 7b). All tensors that a
step reads are on the networks' device, and a step neither waits for a device nor branches on a value: every method can
be captured and replayed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.policies.denoising import DenoisingState, Sampler
from auras_ros.policies.family import Trained
from auras_ros.policies.flow_sampler import FlowSampler
from auras_ros.policies.guidance import FlowTime
from auras_ros.policies.module import NormalisedPolicy
from auras_ros.policies.perception import PerceptionBlock, cut, encode
from auras_ros.policies.precision import like_weights, mark


class DiffusionPolicy(NormalisedPolicy):
    """encoder: [N, 3, h, w] -> [N, F]. network: (actions, timestep, condition) -> its prediction of the same shape.

    The sampler's `prediction` says what the network predicts, clean actions, noise or velocity; actions are in [-1, 1]
    here.
    """

    def __init__(
        self, encoder: nn.Module, network: nn.Module, sampler: Sampler | FlowSampler, trained: Trained
    ) -> None:
        super().__init__(trained)
        self.encoder, self.network, self.sampler = encoder, network, sampler
        mark(self, network)

    @property
    def steps(self) -> int:
        return self.sampler.steps

    @property
    def noise_shape(self) -> tuple[int, int, int]:
        return (self.sampler.tape_length, self.architecture.horizon, self.architecture.actions)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return encode(self.encoder, self, images, state)

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts: chained on (images, state) they give its context, bit for bit."""
        return cut(self.encoder, self)

    def begin(self, noise: Tensor) -> DenoisingState:
        return DenoisingState(noise[:, 0], noise[:, 1:])

    @torch.no_grad()
    def step(self, state: DenoisingState, context: Tensor, index: Tensor) -> DenoisingState:
        return self.advance(state, self.predict(state, context, index), index)

    def predict(self, state: DenoisingState, context: Tensor, index: Tensor) -> Tensor:
        """The network's prediction [B, H, A] (`policies.guidance`)."""
        sample = like_weights(self, state.sample)
        predicted: Tensor = self.network(sample, self.sampler.timesteps[index], context)
        return predicted.to(state.sample.dtype)

    def clean(self, state: DenoisingState, predicted: Tensor, index: Tensor) -> Tensor:
        return self.sampler.clean(state.sample, predicted, index)

    def flow_time(self, index: Tensor) -> FlowTime:
        return self.sampler.flow_time(index)

    def advance(
        self, state: DenoisingState, predicted: Tensor, index: Tensor, shift: Tensor | None = None
    ) -> DenoisingState:
        noise = None
        if self.sampler.name == "ddpm":  # the last step's draw has weight 0; any row of the tape does
            row = index.clamp(max=state.tape.shape[1] - 1).view(-1, 1, 1, 1)
            noise = state.tape.gather(1, row.expand(-1, 1, *state.tape.shape[2:]))[:, 0]
        return DenoisingState(self.sampler.step(state.sample, predicted, noise, index, shift), state.tape)

    def finish(self, state: DenoisingState) -> Tensor:
        lower, upper, *_ = self._bounds
        share = (state.sample[:, self._chunk].double() + 1) / 2
        return lower + share * (upper - lower)

    def place(self, values: Tensor, normalise: bool = True) -> Tensor:
        """The inverse of `finish`: [B, horizon, channels] -> [B, H, A]."""
        return self.placed(values, normalise, self.noise_shape[1:])
