"""Flow matching policies (pi0, pi0.5, SmolVLA): actions are carried from noise to data along a learned velocity.

Perception makes keys and values of pictures and prompt (the public context, with the robot's state in or behind them);
generation is `steps` Euler steps of the expert alone. Time runs as pi0's code has it: 1 is noise, 0 is data, the
velocity is noise - data, and a step of dt = -1 / steps goes down it; the paper's text counts the other way. Every step
reads whatever context it is given, so one that is newer than the step before is no special case. Pure functions of
tensors on one device: every method can be captured and replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from auras_ros.policies.architecture import Architecture
from auras_ros.policies.flow_prefix import FlowPrefix
from auras_ros.policies.guidance import FlowTime, undone
from auras_ros.policies.perception import Body, PerceptionBlock

STEPS = 10  # as pi0 is run


class FlowState(NamedTuple):
    """The actions on their way, [B, horizon, the network's actions]."""

    sample: Tensor


class FlowMatchingPolicy(nn.Module):
    """center, scale: float64 [channels]; physical actions are center + scale * the network's (mean and standard
    deviation, or middle and half of a range). The network's further channels are of no robot's and are left out.
    chunk: which of the horizon's actions are given out.

    Raises ValueError for more channels than the network has, or less than one step.
    """

    def __init__(
        self,
        prefix: FlowPrefix,
        center: Tensor,
        scale: Tensor,
        steps: int = STEPS,
        architecture: Architecture | None = None,
        chunk: slice = slice(None),
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps: {steps} is less than 1")
        width = prefix.model.config.actions
        if center.shape != scale.shape or center.dim() != 1 or not 0 < len(center) <= width:
            shapes = f"{list(center.shape)} and {list(scale.shape)}"
            raise ValueError(f"center and scale: {shapes}, expected [channels] of both, 1 to {width}")
        self.prefix, self.steps, self.architecture, self._chunk = prefix, steps, architecture, chunk
        self._center, self._scale = center.double(), scale.double()

    @property
    def noise_shape(self) -> tuple[int, int]:
        config = self.prefix.model.config
        return (config.horizon, config.actions)

    def example(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Random images and state of this policy's shapes (`Architecture.example`). Raises ValueError without one."""
        if self.architecture is None:
            raise ValueError("this policy was made without an architecture: the shapes of its inputs are not known")
        return self.architecture.example(batch, generator)

    def set_prompt(self, prompt: Tensor) -> None:
        """Another prompt, int64 [ids], of any length up to the prefix's limit, from the next perception on. Raises
        ValueError."""
        self.prefix.set_prompt(prompt)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        """-> keys and values of the prefix in all layers, then the newest state: [B, C]."""
        context: Tensor = self.prefix(images, state)
        return context

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts, bit for bit."""
        return [PerceptionBlock(name, _without_grad(body)) for name, body in self.prefix.blocks()]

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
        return self._center + self._scale * state.sample[:, self._chunk, : len(self._center)].double()

    def place(self, values: Tensor, normalise: bool = True) -> Tensor:
        """`finish` undone: [B, horizon, channels] -> [B, H, actions], zero where the chunk has nothing: the network's
        further channels are nobody's."""
        values = values.to(self._center.device)
        if normalise:
            values = undone(values, self._center, self._scale)
        placed = torch.zeros((len(values), *self.noise_shape), device=values.device)
        placed[:, self._chunk, : len(self._center)] = values.float()
        return placed

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FlowMatchingPolicy:
        """The normalisation follows the networks to their device, and stays float64."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._center.device)).device
        self._center, self._scale = self._center.to(device), self._scale.to(device)
        return self


def _without_grad(body: Body) -> Body:
    @torch.no_grad()
    def run(*carried: Tensor) -> tuple[Tensor, ...]:
        return body(*carried)

    return run
