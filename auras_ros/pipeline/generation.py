"""The generation of one whole request: its state, the context that it keeps to its end, and all steps in one stage.

`seq`, `par` and `dec` generate like this; `auras` has the slab. Nothing here depends on observations or time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from auras_ros.clock import SchedulerClock
from auras_ros.device import Device, Download, Lane, Mark, Stage
from auras_ros.pipeline.context import store
from auras_ros.pipeline.continuity import Aim
from auras_ros.pipeline.drawn import Drawn
from auras_ros.pipeline.guided import make_steps
from auras_ros.pipeline.request import ObservationOrigin
from auras_ros.policies.policy import CausalPolicy, Policy


class Admitted(NamedTuple):
    """A request in flight: its number, its epoch, and the one observation that it answers."""

    number: int
    epoch: int
    seen: ObservationOrigin


class WholeGeneration:
    """`context` [E, ...] has a fixed address; the stage generates from what is there when it runs."""

    def __init__(
        self, policy: Policy, device: Device, lane: Lane, context: Tensor, copies: Lane, guide: str = "none"
    ) -> None:
        """copies: the lane that copies finished actions to the host."""
        self._policy, self.context, self._lane = policy, context, lane
        batch = len(context)
        self._noise = Drawn(policy, device, copies, batch)
        self._begun: Sequence[Mark] = ()
        start = policy.begin(self._noise.buffer)
        self._state = start._make(part.clone() for part in start)
        self._steps = make_steps(policy, guide, 1, batch, context.device)
        self._steps.capture(device, lane, copies)
        self._stage: Stage = device.capture("generation", self._body(), lane)
        self._leaving = Download("copy out", device, copies, self._finish, self._finish())

    def _body(self) -> Callable[[], None]:
        policy, batch = self._policy, len(self.context)
        if isinstance(policy, CausalPolicy):  # with a KV cache, so that the baseline is not handicapped
            self._workspace = policy.workspace(batch, self.context.shape[1])
            return lambda: store(self._state, policy.complete(self.context, self._workspace))
        self._indices = [torch.full((batch,), i, device=self.context.device) for i in range(policy.steps)]

        def run() -> None:
            store(self._state, policy.begin(self._noise.buffer))
            for index in self._indices:
                store(self._state, self._steps.step(self._state, self.context, index))

        return run

    def begin(self, noise: Tensor, aim: Aim | None = None) -> None:
        """Begin a new request. noise [E, *noise_shape]. aim: what its chunk continues."""
        self._steps.aim(aim)
        self._begun = self._noise.send(noise)

    def _finish(self) -> Tensor:
        return self._policy.finish(self._state)

    def launch(self, after: Sequence[Mark] = ()) -> None:
        """Launch all steps, then the copy of the actions to the host."""
        self._generated = self._lane.launch(self._stage, (*after, *self._begun))
        self._left = self._leaving.launch((self._generated,))

    def wait(self, clock: SchedulerClock) -> int:
        """Wait until the actions are on the host. Returns when the last step ended, in ns."""
        self._generated.wait()
        ended_ns = clock.now_ns()
        self._left.wait()
        return ended_ns

    def finished(self) -> Tensor:
        """The actions that were copied last, float64 [E, horizon, channels], on the host."""
        return self._leaving.take()
