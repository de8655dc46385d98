"""What all workers of one executor share, fixed before the first of them is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from auras_ros.action import Contract
from auras_ros.clock import MonotonicClock, SchedulerClock
from auras_ros.device import Device, make_device
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, NoiseTape
from auras_ros.policies.policy import Policy


@dataclass(frozen=True)
class RunContext:
    """One run of a policy by a plan.

    like: an observation with the shapes of all later ones, of random values: zeros may be faster than pictures. device:
    the CPU by default. cores: of lanes with a thread of their own; the cores of the workers' threads are set by their
    driver. contract: the policy's channels, needed by a guided plan. spaced: False lets a request begin as soon as a
    worker is free, whatever interval the plan has; a rate is measured so. stale_ns: of the `Ledger`.
    """

    policy: Policy
    plan: Plan
    noise: NoiseTape
    like: Latched
    clock: SchedulerClock = field(default_factory=MonotonicClock)
    device: Device = field(default_factory=lambda: make_device("cpu"))
    cores: Sequence[int] | None = None
    contract: Contract | None = None
    spaced: bool = True
    stale_ns: int | None = None

    def inputs(self) -> tuple[Tensor, Tensor]:
        """New buffers on the device for images and state of an observation, filled with those of `like`."""
        where = self.device.tensors
        return self.like.images.to(where, copy=True), self.like.state.to(where, copy=True)
