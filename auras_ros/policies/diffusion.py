"""Diffusion Policy: an image encoder shared by cameras and time, and a denoiser over the action horizon.

Perception is the encoder; generation is `steps` calls of the network (Auras equation 2, figure 7b). All tensors that a
step reads lie where the networks lie, and nothing in it waits for a device or branches on a value: every method can
be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.denoising import DenoisingState, Sampler
from auras_ros.policies.guidance import FlowTime, undone
from auras_ros.policies.perception import PerceptionBlock, cut, seen
from auras_ros.policies.precision import like_weights, mark


class DiffusionPolicy(nn.Module):
    """encoder: [N, 3, h, w] -> [N, F]. network: (actions, timestep, condition) -> its prediction of the same shape.

    What the network predicts, clean actions or noise, is the sampler's `prediction`; actions are in [-1, 1] here.
    action_lower, action_upper: float64 [channels]; -1 and 1 of the network mean these (min-max normalisation).
    chunk: which of the horizon's actions `finish` gives; all unless told.
    """

    def __init__(
        self,
        encoder: nn.Module,
        network: nn.Module,
        sampler: Sampler,
        horizon: int,
        action_lower: Tensor,
        action_upper: Tensor,
        architecture: Architecture | None = None,
        chunk: slice | None = None,
    ) -> None:
        super().__init__()
        self._chunk = slice(0, horizon) if chunk is None else chunk
        self.encoder, self.network, self.sampler, self.horizon = encoder, network, sampler, horizon
        self.architecture = architecture
        mark(self, network)
        self._channels = len(action_lower)
        self._lower, self._upper = action_lower.double(), action_upper.double()

    @property
    def steps(self) -> int:
        return self.sampler.steps

    @property
    def noise_shape(self) -> tuple[int, int, int]:
        return (self.sampler.tape_length, self.horizon, self._channels)

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of this policy's shapes (`Architecture.example`). Raises ValueError without one."""
        if self.architecture is None:
            raise ValueError("this policy was made without an architecture: the shapes of its inputs are not known")
        return self.architecture.example(batch, generator)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return seen(self.encoder, self, images, state)

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
        share = (state.sample[:, self._chunk].double() + 1) / 2
        return self._lower + share * (self._upper - self._lower)

    def place(self, values: Tensor, normalise: bool = True) -> Tensor:
        """`finish` undone: [B, horizon, channels] -> [B, H, A], zero where the chunk has nothing."""
        values = values.to(self._lower.device)
        if normalise:
            values = undone(values, (self._lower + self._upper) / 2, (self._upper - self._lower) / 2)
        placed = torch.zeros((len(values), *self.noise_shape[1:]), device=values.device)
        placed[:, self._chunk] = values.float()
        return placed

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DiffusionPolicy:
        """The bounds follow the networks to their device, and stay float64."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._lower.device)).device
        self._lower, self._upper = self._lower.to(device), self._upper.to(device)
        return self
