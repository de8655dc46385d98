"""The four modes behind one interface: which strands a plan has, and what they share (design rule 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from auras_ros.clock import Clock
from auras_ros.device import Device, make_device
from auras_ros.pipeline.auras import AurasStrand
from auras_ros.pipeline.decoupled import GenerateStrand, PerceiveStrand, Shared
from auras_ros.pipeline.plan import Plan, stage_steps
from auras_ros.pipeline.request import Latched, Ledger, Noise, Origin, Strand
from auras_ros.pipeline.whole import WholeStrand
from auras_ros.policies.policy import Policy

WARM_UP_RUNS = 3


class _Keeping(Strand, Protocol):
    def keep(self, rows: Tensor) -> None: ...


class Executor:
    """The strands of one plan. Who drives them is another matter: threads (`live`) or virtual time (lockstep)."""

    def __init__(
        self, policy: Policy, plan: Plan, strands: Sequence[_Keeping], ledger: Ledger, clock: Clock, device: Device
    ) -> None:
        self.policy, self.plan, self.clock = policy, plan, clock
        self.strands: tuple[Strand, ...] = tuple(strands)
        self.ledger = ledger
        self.frame_ns = 0  # how long the longest strand's frame took at warm-up
        self._keeping, self._device = strands, device

    @property
    def frames(self) -> int:
        """Frames begun since the start; warm-up is not counted, nor perception of its own (dec)."""
        return self.ledger.frames

    def warm_up(self, like: Latched, runs: int = WARM_UP_RUNS) -> None:
        """Run every strand on random values of these shapes; discarded (design rule 10)."""
        self.ledger.rehearse()
        interval_ns, self.ledger.interval_ns = self.ledger.interval_ns, 0
        random = torch.Generator().manual_seed(0)
        longest = [0] * len(self.strands)
        filling = self.plan.latency_frames if self.plan.mode == "auras" else 0
        for run in range(runs + filling):
            for i, strand in enumerate(self.strands):
                images = torch.randn(like.images.shape, generator=random)
                state = torch.randn(like.state.shape, generator=random)
                origin_ns = run * len(self.strands) + i + 1
                began_ns = self.clock.now_ns()
                strand.begin(Latched(images, state, Origin(origin_ns, origin_ns, like.origin.reference)), began_ns)
                strand.run()
                strand.end(self.clock.now_ns())
                longest[i] = self.clock.now_ns() - began_ns  # the last run counts: the pipeline is full
        self.ledger.forget()
        self.frame_ns = max(longest)
        if self.plan.mode == "par" and self.plan.frame_period_ms == 0:
            interval_ns = self.frame_ns // self.plan.workers  # evenly spaced requests (Auras 6.1)
        self.ledger.interval_ns = interval_ns

    def reset(self, first_request: int | None = None) -> None:
        """A new epoch from the next boundary on (design rule 9); `first_request` restarts the noise tape there."""
        self.ledger.reset(first_request)

    def keep(self, rows: Tensor) -> None:
        """Go on with these environments alone, int64 [E'] (lockstep); the noise must follow."""
        for strand in self._keeping:
            strand.keep(rows)

    def close(self) -> None:
        """End the device's lanes."""
        self._device.close()


def make_executor(policy: Policy, plan: Plan, noise: Noise, clock: Clock, device: Device | None = None) -> Executor:
    """The executor of a plan, on the CPU if no device is given. Raises PlanError."""
    where = device or make_device("cpu")
    ledger = Ledger(round(plan.frame_period_ms * 1e6) if plan.mode == "par" else 0)
    stage_steps(policy.steps, plan.pp_generation, plan.alpha)
    strands: list[_Keeping]
    if plan.mode == "auras":
        strands = [AurasStrand(policy, plan, noise, ledger, clock, where)]
    elif plan.mode == "dec":
        shared = Shared()
        strands = [
            PerceiveStrand(policy, shared, ledger, where),
            GenerateStrand(policy, shared, noise, ledger, clock, where),
        ]
    else:
        names = ["frame"] if plan.mode == "seq" else [f"worker{i}" for i in range(plan.workers)]
        strands = [WholeStrand(name, policy, noise, ledger, clock, where) for name in names]
    return Executor(policy, plan, strands, ledger, clock, where)
