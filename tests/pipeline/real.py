"""Every mode with the small real policy: executors, observations, and a plain way to run one over the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.policy import Policy
from tests.policies import tiny

SEEDS = (3, 8)  # one environment each


def real(plan: Plan, policy: Policy, seeds: Sequence[int] = SEEDS, like: Latched | None = None) -> Executor:
    """An executor of the small real policy, or of another one with observations `like` this; each environment has the
    noise of its own seed."""

    def noise(request: int) -> torch.Tensor:
        return torch.stack([noise_tape(policy.noise_shape, seed, request) for seed in seeds])

    return make_executor(RunContext(policy, plan, noise, like or still(1, seeds)[0], VirtualClock()))


def still(frames: int, seeds: Sequence[int] = SEEDS) -> list[Latched]:
    """The same picture with a newer stamp every frame: each stage of each request has the same context."""
    images, state = tiny.observed(len(seeds))
    return [Latched(images.clone(), state.clone(), ObservationOrigin(frame, frame)) for frame in range(frames)]


def moving(frames: int, seeds: Sequence[int] = SEEDS) -> list[Latched]:
    return [Latched(*tiny.observed(len(seeds), frame + 1), ObservationOrigin(frame, frame)) for frame in range(frames)]


def run(executor: Executor, seen: Sequence[Latched]) -> list[Emission]:
    """Every worker in turn, one frame each; what is emitted, by request."""
    emissions = []
    for i, one in enumerate(seen):
        workers = executor.workers if executor.plan.mode != "par" else [executor.workers[i % len(executor.workers)]]
        for worker in workers:
            worker.begin(one, 0)
            worker.run()
            emission = worker.end(0)
            emissions += [] if emission is None else [emission]
    executor.close()
    return emissions
