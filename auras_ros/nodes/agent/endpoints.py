"""What the agent publishes, subscribes to and serves (`auras security`)."""

from __future__ import annotations

from auras_ros.nodes.agent.monitors import ANSWER
from auras_ros.nodes.agent.prompt import PROMPT
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import TOPIC as DIAGNOSTICS
from auras_ros.ros.endpoints import Endpoints
from auras_ros.topic_names import ANY, image_topic


def endpoints(settings: AgentSettings) -> list[Endpoints]:
    """With every camera, because its checkpoint names them, and with the topics that `camera_topics` names."""
    topics = settings.topics_of_cameras()
    images = [image_topic(name, topics, compressed=settings.compressed) for name in (ANY, *topics)]
    answers = [ANSWER] if settings.monitor_rules() else []
    node = Endpoints(
        "agent",
        publishes=("~/chunk", "~/heartbeat", "provenance", DIAGNOSTICS),
        subscribes=(*images, settings.joint_states_topic, PROMPT, f"{settings.actuator}/state", *answers),
        serves=("~/reset",),
    )
    return [node.with_those_of_every_node(is_lifecycle=True)]
