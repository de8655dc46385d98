"""Real-time chunking: a chunk is generated as the continuation of the active one (Black, Galliker and Levine 2025).

While a chunk is generated, the robot executes the one before. Actions that it will have executed by then are frozen.
Later actions of the old chunk pull the new one towards them, less and less. So the new chunk begins where the robot
leaves the old one. A policy that denoises, or follows a velocity, predicts clean actions at each step; both methods
move that prediction and change nothing else. Rows are independent, and nothing reads a value back: a guided step can be
captured and replayed like any other.

`pipeline.continuity` chooses these actions and the end of the frozen part.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from auras_ros.policies.policy import Policy, State

Method = Literal["inpaint", "rtc"]
MOST_GAIN = 5.0  # beta of Black et al. 2025: at high noise the plain gain has no bound


class Guide(NamedTuple):
    """target [B, H, A]: actions in the network's units; weight [B, H, A]: 0 leaves free, 1 freezes."""

    target: Tensor
    weight: Tensor


class FlowTime(NamedTuple):
    """The place of a step. time [B]: 0 is noise, 1 is data, on the straight path from one to the other; scale [B]: the
    divisor that puts the sample on that path."""

    time: Tensor
    scale: Tensor


@runtime_checkable
class GuidablePolicy(Policy, Protocol):
    """A policy that denoises a chunk. Its state has the noisy actions as `sample` [B, H, A]; `step` is `predict`, then
    `advance` without a shift."""

    def predict(self, state: State, context: Tensor, index: Tensor) -> Tensor:
        """The network's prediction [B, H, A], differentiable in the sample."""
        ...

    def clean(self, state: State, predicted: Tensor, index: Tensor) -> Tensor:
        """The clean actions [B, H, A] that this prediction implies."""
        ...

    def advance(self, state: State, predicted: Tensor, index: Tensor, shift: Tensor | None = None) -> State:
        """The step, with the expected clean actions moved by `shift` [B, H, A]."""
        ...

    def flow_time(self, index: Tensor) -> FlowTime: ...

    def place(self, values: Tensor, normalise: bool = True) -> Tensor:
        """The inverse of `finish`: [B, horizon, channels], float64 -> the sample's layout [B, H, A], float32, zero
        elsewhere. normalise: from physical units to the network's."""
        ...


def guided_step(
    policy: GuidablePolicy, method: Method, guide: Guide, state: Any, context: Tensor, index: Tensor
) -> State:
    """One step of rows towards the first rows of the guide. With weights of zero it is the plain step, to the bit.

    "inpaint" takes the mean of prediction and target, by the weight. "rtc" follows the gradient of the weighted error
    through the network, so that free actions follow the frozen ones (Black et al. 2025, eq. 2 and 3; Song et al. 2023);
    it costs a backward pass. In both, frozen actions are the target itself, which goes beyond the paper's.
    """
    target, weight = (part[: len(index)] for part in guide)
    with torch.set_grad_enabled(method == "rtc"):
        sample = state.sample.detach().requires_grad_(method == "rtc")
        watched = state._replace(sample=sample)
        predicted = policy.predict(watched, context, index)
        clean = policy.clean(watched, predicted, index)
        shift = weight * (target - clean.detach())
        if method == "rtc":
            (pull,) = torch.autograd.grad(clean, sample, shift)
    with torch.no_grad():
        if method == "rtc":
            shift = torch.where(weight >= 1, target - clean, _gain(policy.flow_time(index)) * pull)
        return policy.advance(state, predicted.detach(), index, shift)


def _gain(at: FlowTime) -> Tensor:
    """How much a pull on the sample moves the expected clean actions, [B, 1, 1].

    On the straight path the velocity gets min(beta, (1 - t) / (t r^2)) with r^2 = (1 - t)^2 / (t^2 + (1 - t)^2), and
    the clean actions are 1 - t of velocity away.
    """
    time, left = at.time, 1 - at.time
    plain = (time.square() + left.square()) / (time * left)  # infinite at time 0
    return (left * plain.clamp(max=MOST_GAIN) * at.scale)[:, None, None]
