"""Generation steps that a guide holds to the active chunk, with its numbers at fixed addresses (`policies.guidance`).

They are copied from the host as observations and noise are: by a stage on the lane for copies, so that the host does
not wait. A stage calls `step` for the rows of any requests; all requests of a frame read one context, so all have one
guide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor

from auras_ros.device import Lane, Upload
from auras_ros.pipeline.continuity import Aim
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.guidance import GuidablePolicy, Guide, Method, guided_step
from auras_ros.policies.policy import State


class GuidedSteps:
    """Of a guided plan, which is already checked against the policy. rows: the largest number of requests side by side;
    batch: environments of each. What is guided must be launched on `lane`, or after a launch on it."""

    def __init__(self, run_context: RunContext, rows: int, batch: int, lane: Lane, copies: Lane) -> None:
        self._policy = policy = cast("GuidablePolicy", run_context.policy)
        device = run_context.device
        start = policy.begin(torch.zeros((batch, *policy.noise_shape), device=device.tensors))
        self._target = torch.zeros((rows, *start.sample.shape), device=device.tensors)
        self._weight = torch.zeros_like(self._target)
        # `Policy.step`, for rows that have all environments of a request: all rows have one guide.
        guide = Guide(self._target.flatten(0, 1), self._weight.flatten(0, 1))
        self.step: Callable[[State, Tensor, Tensor], State]
        self.step = partial(guided_step, policy, cast("Method", run_context.plan.guide), guide)
        actions = policy.finish(start)
        self._given = (torch.zeros_like(actions), torch.zeros_like(actions))  # target and weight, as an Aim has them
        self._free, self._lane = True, lane
        self._upload = Upload("copy guide", device, copies, self._given)
        self._guide = device.capture("guide", self._place, lane)
        self._unguide = device.capture("no guide", self._let_go, lane)

    def _place(self) -> None:
        target, weight = self._given
        self._target.copy_(self._policy.place(target).expand_as(self._target))
        self._weight.copy_(self._policy.place(weight, normalise=False).expand_as(self._weight))

    def _let_go(self) -> None:
        self._weight.zero_()

    def aim(self, aim: Aim | None) -> None:
        """Set what the next launches continue; None: nothing, as without guidance. Earlier guided launches must be
        over."""
        if aim is not None:
            sent = self._upload.send([torch.from_numpy(part) for part in aim])
            self._lane.launch(self._guide, (sent,))
        elif not self._free:
            self._lane.launch(self._unguide)
        self._free = aim is None
