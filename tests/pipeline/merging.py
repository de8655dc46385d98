"""What the tests of merged generation drive: a tiny autoregressive policy, observations, one frame after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from tests.policies.tiny_autoregressive import CHANNELS, HORIZON, tiny_autoregressive

MS = 1_000_000
POLICY = tiny_autoregressive()


def seen(stamp: int, environments: int = 1) -> Latched:
    """A random observation, another one for each stamp."""
    generator = torch.Generator().manual_seed(stamp)
    images = torch.randn(environments, 1, 1, 3, 1, 1, generator=generator)
    state = torch.randn(environments, 1, 2, generator=generator)
    return Latched(images, state, ObservationOrigin(stamp * MS, stamp * MS, None))


def executor(plan: Plan, environments: int = 1) -> Executor:
    like = seen(0, environments)
    return make_executor(RunContext(POLICY, plan, lambda request: torch.zeros(environments, 0), like, VirtualClock()))


def frames(run: Executor, stamps: list[int], environments: int = 1) -> list[Emission | None]:
    """One frame a stamp; what each emits."""
    return frames_of(run, [seen(stamp, environments) for stamp in stamps])


def frames_of(run: Executor, looks: list[Latched]) -> list[Emission | None]:
    worker, found = run.workers[0], []
    for look in looks:
        worker.begin(look, look.origin.mono_ns)
        worker.run()
        found.append(worker.end(look.origin.mono_ns))
    return found


def actions(tokens: list[int]) -> Tensor:
    return POLICY.codec.decode(torch.tensor(tokens).view(1, HORIZON, CHANNELS))


def still(stamps: list[int], *, picture: bool) -> list[Latched]:
    """Observations of which the picture (or else the state) is always that of the first."""
    first, looks = seen(stamps[0]), [seen(stamp) for stamp in stamps]
    return [
        Latched(first.images if picture else look.images, look.state if picture else first.state, look.origin)
        for look in looks
    ]
