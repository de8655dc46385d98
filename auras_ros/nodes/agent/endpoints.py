"""What the agent publishes, subscribes to and serves (`auras security`)."""

from __future__ import annotations

from auras_ros.nodes.agent.configured import ANSWER
from auras_ros.nodes.agent.prompt import PROMPT
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import TOPIC as DIAGNOSTICS
from auras_ros.nodes.common.input_counters import STATE
from auras_ros.ros.endpoints import Endpoints


def endpoints(settings: AgentSettings) -> list[Endpoints]:
    """With every camera, because its checkpoint names them."""
    images = "camera/*/image_raw/compressed" if settings.compressed else "camera/*/image_raw"
    answers = [ANSWER] if settings.monitor_rules() else []
    node = Endpoints(
        "agent",
        publishes=("~/chunk", "~/heartbeat", "provenance", DIAGNOSTICS),
        subscribes=(images, STATE, PROMPT, f"{settings.actuator}/state", *answers),
        serves=("~/reset",),
    )
    return [node.with_those_of_every_node(is_lifecycle=True)]
