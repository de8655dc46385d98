"""Real-time chunking: a chunk is generated as the continuation of the active one (Black, Galliker and Levine 2025).

While a chunk is generated the robot executes the one before. What it will have executed by then is frozen, and what
the old chunk says beyond that pulls the new one towards it, the less the later: so the new chunk begins where the old
one is left, and not beside it. A policy that denoises, or follows a velocity, says at each step which clean actions it
expects; both methods move that expectation and leave the rest of the step alone. Rows are independent, nothing reads a
value back: a guided step can be captured and replayed like any other.

Which actions these are, and where the freezing ends, is `pipeline.continuity`'s.
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
    """Where a step stands. time [B]: 0 is noise, 1 is data, on the straight path from one to the other; scale [B]: what
    the sample is divided by to lie on that path."""

    time: Tensor
    scale: Tensor


@runtime_checkable
class GuidablePolicy(Policy, Protocol):
    """A policy that denoises a chunk. Its state has the noisy actions as `sample` [B, H, A]; `step` is `predict`, then
    `advance` without a shift."""

    def predict(self, state: State, context: Tensor, index: Tensor) -> Tensor:
        """The network's word [B, H, A], differentiable in the sample."""
        ...

    def clean(self, state: State, predicted: Tensor, index: Tensor) -> Tensor:
        """The clean actions [B, H, A] that this word means."""
        ...

    def advance(self, state: State, predicted: Tensor, index: Tensor, shift: Tensor | None = None) -> State:
        """The step, as though the clean actions were expected `shift` [B, H, A] further."""
        ...

    def flow_time(self, index: Tensor) -> FlowTime: ...

    def place(self, values: Tensor, normalise: bool = True) -> Tensor:
        """What `finish` undone gives: [B, horizon, channels], float64, where the sample has it, [B, H, A] float32, and
        zero elsewhere. normalise: from physical units to the network's."""
        ...


def guided_step(
    policy: GuidablePolicy, method: Method, guide: Guide, state: Any, context: Tensor, index: Tensor
) -> State:
    """One step of rows towards the first rows of the guide. With weights of zero it is the plain step, to the bit.

    "inpaint" takes the mean of what is expected and the target, by the weight. "rtc" pulls by the gradient of the
    weighted error through the network, so that free actions follow those that are held (Black et al. 2025, eq. 2 and
    3; Song et al. 2023); it costs a backward pass. Frozen actions are the target itself in both, which goes beyond the
    paper's.
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
    """What a pull on the sample counts for the expected clean actions, [B, 1, 1].

    On the straight path the velocity gets min(beta, (1 - t) / (t r^2)) with r^2 = (1 - t)^2 / (t^2 + (1 - t)^2), and
    the clean actions are 1 - t of velocity away.
    """
    time, left = at.time, 1 - at.time
    plain = (time.square() + left.square()) / (time * left)  # endless at time 0
    return (left * plain.clamp(max=MOST_GAIN) * at.scale)[:, None, None]
