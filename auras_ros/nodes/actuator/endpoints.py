"""What the actuator publishes, subscribes to and serves (`auras security`)."""

from __future__ import annotations

from auras_ros.nodes.actuator.inputs import DESCRIPTION
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.common.diagnostics import TOPIC as DIAGNOSTICS
from auras_ros.nodes.common.stop_signature import CHALLENGE_TOPIC, SIGNED
from auras_ros.ros.endpoints import Endpoints


def endpoints(settings: ActuatorSettings) -> list[Endpoints]:
    """Of its two nodes; that of the emergency stop uses the other's names."""
    agent = settings.agent
    node = Endpoints(
        "actuator",
        publishes=(*settings.command_topics, "~/state", DIAGNOSTICS),
        subscribes=(f"{agent}/chunk", f"{agent}/heartbeat", settings.joint_states_topic, DESCRIPTION),
        serves=("~/arm", "~/disarm", "~/release_stop"),
    )
    words, challenges = list(settings.emergency_stops), []
    if settings.emergency_stop_key_file:
        words += [f"{topic}/{SIGNED}" for topic in settings.emergency_stops]
        challenges = [f"{node.node}/{CHALLENGE_TOPIC}"]
    stop = Endpoints(
        "actuator_stop",
        publishes=(*challenges, "/parameter_events"),
        subscribes=tuple(words),
        serves=(f"{node.node}/stop", "~/get_type_description"),
    )
    return [node.with_those_of_every_node(), stop]
