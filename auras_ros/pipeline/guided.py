"""The generation steps of a plan, guided or not: the guide's numbers lie at fixed addresses (`policies.guidance`).

They come from the host as observations and noise do: by a stage on the lane for copies, so that no copy holds the host
up. A stage calls `step` for rows of whatever requests stand there; every request of a frame reads one context, so that
all have one guide.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor

from auras_ros.device import Device, Lane, Mark, Stage, Upload
from auras_ros.pipeline.continuity import Aim
from auras_ros.policies.guidance import GuidablePolicy, Guide, Method, guided_step
from auras_ros.policies.policy import Policy, State


class Steps(Protocol):
    """What a stage of generation needs to know of guidance."""

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """`Policy.step`, for rows that are whole sets of environments."""
        ...

    def capture(self, device: Device, lane: Lane, copies: Lane) -> None:
        """The stages by which `aim` works; what is aimed is launched on `lane`, or after what was launched there."""
        ...

    def aim(self, aim: Aim | None) -> None:
        """What the next launches go on from; None: from nothing, as without guidance. Of those before, whatever
        followed an aim is over."""
        ...

    def take(self, other: Steps, environments: Tensor) -> None:
        """Go on as these environments of another one stand."""
        ...


class PlainSteps:
    """No guidance."""

    def __init__(self, policy: Policy) -> None:
        self.step = policy.step

    def capture(self, device: Device, lane: Lane, copies: Lane) -> None:
        """There is nothing to send."""

    def aim(self, aim: Aim | None) -> None:
        if aim is not None:
            raise ValueError("these steps are not guided")

    def take(self, other: Steps, environments: Tensor) -> None:
        """There is nothing to take."""


class GuidedSteps:
    """rows: of requests that run side by side at most; batch: environments of each."""

    def __init__(self, policy: GuidablePolicy, method: Method, rows: int, batch: int, device: torch.device) -> None:
        self._policy, self._method = policy, method
        start = policy.begin(torch.zeros((batch, *policy.noise_shape), device=device))
        self._target = torch.zeros((rows, *start.sample.shape), device=device)
        self._weight = torch.zeros_like(self._target)
        actions = policy.finish(start)
        self._given = (torch.zeros_like(actions), torch.zeros_like(actions))  # target and weight, as an Aim has them
        self._free, self._launched = True, tuple[Mark, ...]()

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """All rows have one guide, so that any rows may read the first ones' memory."""
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
            self._launched = (self._lane.launch(self._guide, (sent,)),)
        elif not self._free:
            self._launched = (self._lane.launch(self._unguide),)
        self._free = aim is None

    def take(self, other: Steps, environments: Tensor) -> None:
        theirs = cast("GuidedSteps", other)
        for mark in theirs._launched:
            mark.wait()
        self._target.copy_(theirs._target[:, environments])
        self._weight.copy_(theirs._weight[:, environments])
        self._free = theirs._free


def make_steps(policy: Policy, guide: str, rows: int, batch: int, device: torch.device) -> Steps:
    """guide: of the plan, which was checked against the policy."""
    if guide == "none":
        return PlainSteps(policy)
    return GuidedSteps(cast("GuidablePolicy", policy), cast("Method", guide), rows, batch, device)
