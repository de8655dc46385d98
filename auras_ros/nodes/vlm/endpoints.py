"""What the vision-language model's node publishes, subscribes to and serves (`auras security`)."""

from __future__ import annotations

from auras_ros.nodes.common.diagnostics import TOPIC as DIAGNOSTICS
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros.endpoints import Endpoints
from auras_ros.topic_names import image_topic


def endpoints(settings: VlmSettings) -> list[Endpoints]:
    has_adapters = settings.loras or settings.max_loras or settings.remote_configuration
    detections = ["detections"] if has_adapters else []
    topics = settings.topics_of_cameras()
    images = [image_topic(name, topics, compressed=settings.compressed) for name in settings.camera_names()]
    node = Endpoints(
        "vlm",
        publishes=("~/heartbeat", "answer", "answer/stream", *detections, DIAGNOSTICS),
        subscribes=("question", *images),
    )
    return [node.with_those_of_every_node(is_lifecycle=True)]
