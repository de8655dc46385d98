"""What a button publishes and subscribes to (`auras security`)."""

from __future__ import annotations

from auras_ros.nodes.button.settings import ButtonSettings
from auras_ros.nodes.common.stop_signature import CHALLENGE_TOPIC, SIGNED
from auras_ros.ros.endpoints import Endpoints


def endpoints(settings: ButtonSettings) -> list[Endpoints]:
    words, challenges = [settings.topic], []
    if settings.emergency_stop_key_file:
        words.append(f"{settings.topic}/{SIGNED}")
        challenges = [f"{name}/{CHALLENGE_TOPIC}" for name in settings.actuators]
    node = Endpoints("button", publishes=tuple(words), subscribes=tuple(challenges))
    return [node.with_those_of_every_node()]
