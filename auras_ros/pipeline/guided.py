"""The generation steps of a plan, guided or not, with the guide's numbers at fixed addresses (`policies.guidance`).

They are copied from the host as observations and noise are: by a stage on the lane for copies, so that the host does
not wait. A stage calls `step` for the rows of any requests; all requests of a frame read one context, so all have one
guide.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor

from auras_ros.device import Device, Lane, Stage, Upload
from auras_ros.pipeline.continuity import Aim
from auras_ros.policies.guidance import GuidablePolicy, Guide, Method, guided_step
from auras_ros.policies.policy import Policy, State


class Steps(Protocol):
    """What a stage of generation uses of guidance."""

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """`Policy.step`, for rows that have all environments of a request."""
        ...

    def capture(self, device: Device, lane: Lane, copies: Lane) -> None:
        """Capture the stages that `aim` launches. What they guide must be launched on `lane`, or after a launch on
        it."""
        ...

    def aim(self, aim: Aim | None) -> None:
        """Set what the next launches continue; None: nothing, as without guidance. Earlier guided launches must be
        over."""
        ...


class PlainSteps:
    """No guidance."""

    def __init__(self, policy: Policy) -> None:
        self.step = policy.step

    def capture(self, device: Device, lane: Lane, copies: Lane) -> None:
        """Nothing to capture."""

    def aim(self, aim: Aim | None) -> None:
        if aim is not None:
            raise ValueError("these steps are not guided")


class GuidedSteps:
    """rows: the largest number of requests side by side; batch: environments of each."""

    def __init__(self, policy: GuidablePolicy, method: Method, rows: int, batch: int, device: torch.device) -> None:
        self._policy, self._method = policy, method
        start = policy.begin(torch.zeros((batch, *policy.noise_shape), device=device))
        self._target = torch.zeros((rows, *start.sample.shape), device=device)
        self._weight = torch.zeros_like(self._target)
        actions = policy.finish(start)
        self._given = (torch.zeros_like(actions), torch.zeros_like(actions))  # target and weight, as an Aim has them
        self._free = True

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """All rows have one guide, so any rows may read the memory of the first ones."""
        guide = Guide(*(part.flatten(0, 1)[: len(index)] for part in (self._target, self._weight)))
        return guided_step(self._policy, self._method, state, context, index, guide)

    def capture(self, device: Device, lane: Lane, copies: Lane) -> None:
        self._lane = lane
        self._upload = Upload("copy guide", device, copies, self._given)
        self._guide: Stage = device.capture("guide", self._place, lane)
        self._unguide: Stage = device.capture("no guide", self._let_go, lane)

    def _place(self) -> None:
        target, weight = self._given
        self._target.copy_(self._policy.place(target).expand_as(self._target))
        self._weight.copy_(self._policy.place(weight, normalise=False).expand_as(self._weight))

    def _let_go(self) -> None:
        self._weight.zero_()

    def aim(self, aim: Aim | None) -> None:
        if aim is not None:
            sent = self._upload.send([torch.from_numpy(part) for part in aim])
            self._lane.launch(self._guide, (sent,))
        elif not self._free:
            self._lane.launch(self._unguide)
        self._free = aim is None


def make_steps(policy: Policy, guide: str, rows: int, batch: int, device: torch.device) -> Steps:
    """guide: the plan's, already checked against the policy."""
    if guide == "none":
        return PlainSteps(policy)
    return GuidedSteps(cast("GuidablePolicy", policy), cast("Method", guide), rows, batch, device)
