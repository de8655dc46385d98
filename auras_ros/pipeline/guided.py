"""The generation steps of a plan, guided or not: the guide's numbers lie at fixed addresses (`policies.guidance`).

A stage calls `step` for rows of whatever requests stand there; every request of a frame reads one context, so that all
have one guide.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor

from auras_ros.pipeline.continuity import Aim
from auras_ros.policies.guidance import GuidablePolicy, Guide, Method, guided_step
from auras_ros.policies.policy import Policy, State


class Steps(Protocol):
    """What a stage of generation needs to know of guidance."""

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """`Policy.step`, for rows that are whole sets of environments."""
        ...

    def aim(self, aim: Aim | None) -> None:
        """What the next launches go on from; None: from nothing, as without guidance."""
        ...

    def take(self, other: Steps, environments: Tensor) -> None:
        """Go on as these environments of another one stand."""
        ...


class PlainSteps:
    """No guidance."""

    def __init__(self, policy: Policy) -> None:
        self.step = policy.step

    def aim(self, aim: Aim | None) -> None:
        if aim is not None:
            raise ValueError("these steps are not guided")

    def take(self, other: Steps, environments: Tensor) -> None:
        """There is nothing to take."""


class GuidedSteps:
    """rows: of requests that run side by side at most; batch: environments of each."""

    def __init__(self, policy: GuidablePolicy, method: Method, rows: int, batch: int, device: torch.device) -> None:
        self._policy, self._method = policy, method
        sample = policy.begin(torch.zeros((batch, *policy.noise_shape), device=device)).sample
        self._target = torch.zeros((rows, *sample.shape), device=device)
        self._weight = torch.zeros_like(self._target)
        self._free = True

    def step(self, state: State, context: Tensor, index: Tensor) -> State:
        """All rows have one guide, so that any rows may read the first ones' memory."""
        guide = Guide(*(part.flatten(0, 1)[: len(index)] for part in (self._target, self._weight)))
        return guided_step(self._policy, self._method, state, context, index, guide)

    def aim(self, aim: Aim | None) -> None:
        if aim is None:
            if not self._free:
                self._weight.zero_()
            self._free = True
            return
        target, weight = torch.from_numpy(aim.target), torch.from_numpy(aim.weight)
        self._target.copy_(self._policy.place(target).expand_as(self._target))
        self._weight.copy_(self._policy.place(weight, normalise=False).expand_as(self._weight))
        self._free = False

    def take(self, other: Steps, environments: Tensor) -> None:
        theirs = cast("GuidedSteps", other)
        self._target.copy_(theirs._target[:, environments])
        self._weight.copy_(theirs._weight[:, environments])
        self._free = theirs._free


def make_steps(policy: Policy, guide: str, rows: int, batch: int, device: torch.device) -> Steps:
    """guide: of the plan, which was checked against the policy."""
    if guide == "none":
        return PlainSteps(policy)
    return GuidedSteps(cast("GuidablePolicy", policy), cast("Method", guide), rows, batch, device)
