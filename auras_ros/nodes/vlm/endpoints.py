"""What the vision-language model's node publishes, subscribes to and serves (`auras security`)."""

from __future__ import annotations

from auras_ros.nodes.common.diagnostics import TOPIC as DIAGNOSTICS
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros.endpoints import Endpoints


def endpoints(settings: VlmSettings) -> list[Endpoints]:
    has_adapters = settings.loras or settings.max_loras or settings.remote_configuration
    detections = ["detections"] if has_adapters else []
    suffix = "image_raw/compressed" if settings.compressed else "image_raw"
    node = Endpoints(
        "vlm",
        publishes=("~/heartbeat", "answer", "answer/stream", *detections, DIAGNOSTICS),
        subscribes=("question", *(f"camera/{name}/{suffix}" for name in settings.camera_names())),
    )
    return [node.with_those_of_every_node(is_lifecycle=True)]
