"""Why the agent's inputs bring nothing, or not what they should, with the remedy: for diagnostics and the log.

The ROS graph, the names in joint states and their publishers are looked at once a second. Nothing here refuses a
message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from auras_ros.action import Contract
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.input_counters import STATE_SLOT, InputCounters
from auras_ros.nodes.common.joint_names import naming_hint
from auras_ros.nodes.common.joint_publishers import JointPublishers
from auras_ros.nodes.common.topic_causes import endpoint_node, several_publishers, why_no_image, why_no_joint_states
from auras_ros.observation import FaultName, ObservationFault, ObservationSpec
from auras_ros.ros import Node
from auras_ros.ros.identity import publisher_of
from auras_ros.ros.msg import CompressedImage, Image
from auras_ros.topic_names import image_topic

# Faults that have no cause of their own; the others say themselves what to do.
SYMPTOMS = (FaultName.MISSING, FaultName.STALE)


class InputCauses:
    """Used in the executor's thread. camera_topics: camera -> topic of the messages that are subscribed to."""

    def __init__(
        self,
        node: Node,
        spec: ObservationSpec,
        contract: Contract,
        settings: AgentSettings,
        counters: InputCounters,
    ) -> None:
        self._node = node
        self._settings = settings
        self._counters = counters
        self._joints = spec.state.names if spec.state else ()
        self._publishers = JointPublishers(contract, self._joints)
        self._other_names: Sequence[str] = ()  # in the newest message with none of the policy's joints
        self._image_kind: Any = CompressedImage if settings.compressed else Image
        topics = settings.topics_of_cameras()
        self.camera_topics = {
            camera.name: image_topic(camera.name, topics, compressed=settings.compressed) for camera in spec.cameras
        }

    def note_joints(
        self, info: Any, names: Sequence[str], positions: Sequence[float], stamp_ns: int, now_ns: int
    ) -> None:
        """Note a message with joints of the policy. names: without the prefix. info: what the middleware says of it."""
        self._publishers.heard(publisher_of(info), names, positions, stamp_ns, now_ns)

    def note_other_names(self, names: Sequence[str]) -> None:
        """Note a message with none of the policy's joints, by the names as they were published."""
        self._other_names = names

    def cause(self, fault: ObservationFault, now_ns: int) -> str:
        """Why a stream has nothing new, beginning with "; "; empty where the fault says it itself."""
        if refused := self._counters.cause(fault):
            return refused
        if fault.name not in SYMPTOMS:
            return ""
        if fault.source in self.camera_topics:
            if not self._counters.is_silent(fault, now_ns):
                return ""
            return f"; {why_no_image(self._node, fault.source, self.camera_topics, self._image_kind)}"
        if fault.source != STATE_SLOT:
            return ""
        if self._other_names and fault.name is FaultName.MISSING:
            return f"; {naming_hint(self._joints, self._other_names, self._settings.joint_prefix)}"
        if not self._counters.is_silent(fault, now_ns):
            return ""
        return f"; {why_no_joint_states(self._node, self._settings.joint_states_topic)}"

    def warning(self, now_ns: int) -> str:
        """What is wrong though observations come: two nodes publish the same thing; empty if nothing is."""
        if self._joints:
            infos = self._node.get_publishers_info_by_topic(self._settings.joint_states_topic)
            nodes = {bytes(info.endpoint_gid): endpoint_node(info) for info in infos}
            self._publishers.discovered(nodes, now_ns)
            if rivals := self._publishers.rivals(now_ns):
                return rivals
        for camera, topic in self.camera_topics.items():
            if names := several_publishers(self._node, topic, self._image_kind):
                return f"{camera}: several nodes publish its images: {names}: stop all but one of them"
        return ""
