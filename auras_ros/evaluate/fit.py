"""Whether a policy can play a world, by what both declare: no weights are read, and no simulator is needed."""

from __future__ import annotations

from collections.abc import Collection

from auras_ros.action import Contract
from auras_ros.sim.world import World


def misfit(contract: Contract, cameras: Collection[str], world: World | type[World]) -> str:
    """What keeps them apart: channels, control period or cameras; empty if nothing does. cameras: that the policy
    sees."""
    names, step_ms = tuple(each.name for each in world.channels), world.control_dt_ms
    if contract.names != names:
        return f"the world's channels are {names}, the policy's {contract.names}"
    if contract.dt_ms != step_ms:
        return f"the world's step is {step_ms} ms, the policy's {contract.dt_ms}"
    seen = [each.name for each in world.cameras]
    if not set(cameras) <= set(seen):
        return f"the world's cameras are {', '.join(seen)}, the policy's {', '.join(cameras)}"
    return ""
