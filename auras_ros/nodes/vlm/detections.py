"""The boxes of a task head as `detections`, in pixels of the image that was asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from auras_ros.lora.heads import DetectedBox
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.ros import QoSProfile, ReliabilityPolicy, msg
from auras_ros.ros.image import to_time_msg

DETECTIONS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


class DetectionPublisher:
    """Any thread may publish. Raises ImportError where ROS 2 is installed without vision_msgs."""

    def __init__(self, qos: QosWatch) -> None:
        self._node = qos.node
        self._publisher = qos.create_publisher(msg.Detection2DArray, "detections", DETECTIONS)

    def publish(self, stamp_ns: int, frame_id: str, size: tuple[int, int], boxes: Sequence[DetectedBox]) -> None:
        self._publisher.publish(detections_message(stamp_ns, frame_id, size, boxes))

    def close(self) -> None:
        self._node.destroy_publisher(self._publisher)


def detections_message(stamp_ns: int, frame_id: str, size: tuple[int, int], boxes: Sequence[DetectedBox]) -> Any:
    """A vision_msgs/Detection2DArray; it is empty if nothing was found. size: height and width of the image."""
    header = msg.Header(stamp=to_time_msg(stamp_ns), frame_id=frame_id)
    return msg.Detection2DArray(header=header, detections=[_detection(header, size, box) for box in boxes])


def _detection(header: Any, size: tuple[int, int], box: DetectedBox) -> Any:
    height, width = size
    centre = msg.Pose2D(position=msg.Point2D(x=box.x * width, y=box.y * height), theta=0.0)
    hypothesis = msg.ObjectHypothesis(class_id=box.label, score=box.score)
    return msg.Detection2D(
        header=header,
        results=[msg.ObjectHypothesisWithPose(hypothesis=hypothesis)],
        bbox=msg.BoundingBox2D(center=centre, size_x=box.width * width, size_y=box.height * height),
    )
