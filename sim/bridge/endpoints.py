"""What a world's bridge publishes, subscribes to and serves (`auras security`)."""

from __future__ import annotations

from auras_ros.ros.endpoints import Endpoints
from auras_ros.sim.bridge.settings import BridgeSettings


def endpoints(settings: BridgeSettings) -> list[Endpoints]:
    """With every camera, and a prompt, because a world says what it has when it is made."""
    clock = ["/clock"] if settings.publish_clock else []
    node = Endpoints(
        settings.sim.world.name,
        publishes=("camera/*", "joint_states", "prompt", "~/status", "~/reward", *clock),
        subscribes=("action",),
        serves=("~/reset",),
    )
    return [node.with_those_of_every_node()]
