"""Flow matching policies (pi0, pi0.5, SmolVLA): actions move from noise to data along a learned velocity.

Perception computes keys and values of images and prompt (the public context, with the robot's state in or behind them);
generation is `steps` Euler steps of the expert alone. Time runs as in pi0's code: 1 is noise, 0 is data, the velocity
is noise - data, and a step is dt = -1 / steps; the paper's text counts the other way. Every step reads the context that
it is given, so a context newer than that of the step before is no special case. Pure functions of tensors on one
device: every method can be captured and replayed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.policies.family import Trained
from auras_ros.policies.flow_prefix import FlowPrefix
from auras_ros.policies.guidance import FlowTime
from auras_ros.policies.module import NormalisedPolicy
from auras_ros.policies.perception import PerceptionBlock, without_grad

STEPS = 10  # as in pi0


class FlowState(NamedTuple):
    """The actions between noise and data, [B, horizon, the network's actions]."""

    sample: Tensor


class FlowMatchingPolicy(NormalisedPolicy):
    """Channels of the network that the robot does not have are left out. Raises ValueError for more channels than the
    network has, or less than one step."""

    def __init__(self, prefix: FlowPrefix, trained: Trained, steps: int = STEPS) -> None:
        super().__init__(trained)
        if steps < 1:
            raise ValueError(f"steps: {steps} is less than 1")
        width = prefix.model.config.actions
        if not 0 < len(trained.lower) <= width:
            raise ValueError(f"actions: {len(trained.lower)} channels, expected 1 to {width}")
        self.prefix, self.steps = prefix, steps

    @property
    def noise_shape(self) -> tuple[int, int]:
        config = self.prefix.model.config
        return (config.horizon, config.actions)

    def set_prompt(self, prompt: Tensor) -> None:
        """Set another prompt, int64 [ids], of any length up to the prefix's limit, from the next perception on. Raises
        ValueError."""
        self.prefix.set_prompt(prompt)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """-> keys and values of the prefix in all layers, then the newest state: [B, C]."""
        context: Tensor = self.prefix(images, state)
        return context

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts, bit for bit."""
        return without_grad(self.prefix.blocks())

    def begin(self, noise: Tensor) -> FlowState:
        return FlowState(noise)

    @torch.no_grad()
    def step(self, state: FlowState, context: Tensor, index: Tensor) -> FlowState:
        """One Euler step of each row from its own time 1 - index / steps."""
        return self.advance(state, self.predict(state, context, index), index)

    def predict(self, state: FlowState, context: Tensor, index: Tensor) -> Tensor:
        """The velocity [B, horizon, actions], noise - data (`policies.guidance`)."""
        velocity: Tensor = self.prefix.model.velocity(state.sample, self._time(index), context)
        return velocity

    def clean(self, state: FlowState, predicted: Tensor, index: Tensor) -> Tensor:
        return state.sample - self._time(index).to(predicted.dtype)[:, None, None] * predicted

    def advance(self, state: FlowState, predicted: Tensor, index: Tensor, shift: Tensor | None = None) -> FlowState:
        if shift is not None:
            predicted = predicted - shift / self._time(index).to(predicted.dtype)[:, None, None]
        return FlowState(state.sample - predicted / self.steps)

    def flow_time(self, index: Tensor) -> FlowTime:
        time = 1 - self._time(index).float()
        return FlowTime(time, torch.ones_like(time))

    def _time(self, index: Tensor) -> Tensor:
        """float64 [B]: 1 is noise."""
        return 1 - index.double() / self.steps

    def finish(self, state: FlowState) -> Tensor:
        return self.physical(state.sample)

    def place(self, values: Tensor, normalise: bool = True) -> Tensor:
        """The inverse of `finish`: [B, horizon, channels] -> [B, H, actions]."""
        return self.placed(values, normalise, self.noise_shape)
