"""The agent's publishers: chunks with their provenance. They decide nothing."""

from __future__ import annotations

from auras_ros.action import Chunk, Contract
from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import chunk_message
from auras_ros.nodes.common.qos import RELIABLE
from auras_ros.pipeline.request import Emission
from auras_ros.ros import Node
from auras_ros.ros.image import to_time_msg
from auras_ros.ros.msg import DiagnosticArray, DiagnosticStatus, Float64MultiArray, KeyValue


class AgentPublishers:
    """The agent's publishers. `chunk` may be called from any thread."""

    def __init__(self, node: Node, qos: QosWatch) -> None:
        self._name = node.get_fully_qualified_name()
        self._monotonic = MonotonicClock()
        self._chunk = qos.create_publisher(Float64MultiArray, "~/chunk", RELIABLE)
        self._provenance = qos.create_publisher(DiagnosticArray, "provenance", RELIABLE)

    def chunk(self, chunk: Chunk, emission: Emission, contract: Contract) -> None:
        """Publish the chunk to the actuator, then its provenance."""
        self._chunk.publish(chunk_message(chunk, contract))
        facts = {
            **chunk.provenance.to_dict(),
            "stage_ns": list(emission.stage_ns),
            "latched_ns": emission.latched_ns,
            "perceived_ns": emission.perceived_ns,
            "generated_ns": emission.generated_ns,
            "published_ns": self._monotonic.now_ns(),
        }
        status = DiagnosticStatus(
            level=DiagnosticStatus.OK,
            name=self._name,
            message="chunk",
            values=[KeyValue(key=key, value=str(value)) for key, value in facts.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = to_time_msg(chunk.provenance.origin_stamp_ns)
        self._provenance.publish(array)
