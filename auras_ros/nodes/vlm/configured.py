"""What the node holds between configure and cleanup: the engine, and the topics of cameras, questions and
detections."""

from __future__ import annotations

import gc
from collections.abc import Callable

from auras_ros.engine.engine import Engine
from auras_ros.nodes.common.bounded_subscription import subscribe
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.qos import ANSWERS
from auras_ros.nodes.vlm.cameras import CameraInputs
from auras_ros.nodes.vlm.detections import DetectionPublisher
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros import Node
from auras_ros.ros.bounded import text_limits
from auras_ros.ros.msg import String


class ConfiguredVlm:
    """Subscribes at once; each activation has its own `Answering`. on_question, refuse_question: called with the text
    of each question, and with the reason why a message is none."""

    def __init__(
        self,
        node: Node,
        settings: VlmSettings,
        engine: Engine,
        qos: QosWatch,
        on_question: Callable[[str], None],
        refuse_question: Callable[[ValueError], None],
    ) -> None:
        self._node, self.settings, self.engine = node, settings, engine
        self.detections = None if engine.adapters is None else self._publisher(qos)
        self.cameras = CameraInputs(node, settings, qos)
        self._questions = subscribe(
            qos,
            String,
            "question",
            lambda message: on_question(message.data),
            ANSWERS,
            text_limits(settings.question_limit_bytes),
            refuse_question,
        )

    def close(self) -> None:
        """Release topics and engine: waits for a forward that runs."""
        self._questions.close()
        self.cameras.close()
        if self.detections is not None:
            self.detections.close()
        gc.unfreeze()
        self.engine.close()

    def _publisher(self, qos: QosWatch) -> DetectionPublisher | None:
        try:
            return DetectionPublisher(qos)
        except ImportError as error:  # of ROS 2: boxes are in the answers all the same
            self._node.get_logger().warning(f"no detections: {error}")
            return None
