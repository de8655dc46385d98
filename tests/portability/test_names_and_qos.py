"""The names and the quality of service of the nodes' topics, as the graph of the ROS under test shows them.

Guards: a name that is looked up otherwise than ROS remaps it, and a QoS that changes without the interface's page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auras_ros.ros import DurabilityPolicy, ReliabilityPolicy
from auras_ros.ros.msg import Bool, Float64MultiArray
from tests.nodes.stand_ins import FakeAgent, Robot
from tests.nodes.wire import LATCHED, Children, Watch

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
VOLATILE, KEPT = DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL
Endpoint = tuple[str, str, ReliabilityPolicy, DurabilityPolicy]


def endpoints(watch: Watch, node: str, infos: Callable[[str], list[Any]]) -> set[Endpoint]:
    """(topic, type, reliability, durability) of a node's publishers or subscriptions."""
    found = set()
    for topic, _ in watch.node.get_topic_names_and_types():
        for info in infos(topic):
            if f"{info.node_namespace.rstrip('/')}/{info.node_name}" == node:
                kind = info.topic_type.rpartition("/")[2]
                found.add((topic, kind, info.qos_profile.reliability, info.qos_profile.durability))
    return found


def published(watch: Watch, node: str) -> set[Endpoint]:
    return endpoints(watch, node, watch.node.get_publishers_info_by_topic)


def heard(watch: Watch, node: str) -> set[Endpoint]:
    return endpoints(watch, node, watch.node.get_subscriptions_info_by_topic)


def test_the_actuator_under_another_name_and_with_remapped_topics(
    children: Children, checkpoint: str, watch: Watch, fake: FakeAgent, robot: Robot
) -> None:
    remaps = ("__ns:=/left", "__node:=hand", "action:=/arm_controller/commands", "emergency_stop:=/cell/stop")
    children.node("actuator", {"checkpoint": checkpoint}, *[word for rule in remaps for word in ("-r", rule)])
    outputs = {
        ("/arm_controller/commands", "Float64MultiArray", RELIABLE, VOLATILE),
        ("/left/hand/state", "String", RELIABLE, KEPT),
        ("/diagnostics", "DiagnosticArray", RELIABLE, VOLATILE),
    }
    inputs = {
        ("/left/agent/chunk", "Float64MultiArray", RELIABLE, VOLATILE),
        ("/left/agent/heartbeat", "String", BEST_EFFORT, VOLATILE),
        ("/left/joint_states", "JointState", BEST_EFFORT, VOLATILE),
        ("/left/robot_description", "String", RELIABLE, KEPT),
    }
    stops = {("/cell/stop", "Bool", RELIABLE, KEPT), ("/cell/stop", "Bool", RELIABLE, VOLATILE)}
    watch.until(lambda: outputs <= published(watch, "/left/hand"), "the actuator's topics")
    watch.until(lambda: inputs <= heard(watch, "/left/hand"), "the actuator's subscriptions")
    watch.until(lambda: stops <= heard(watch, "/left/hand_stop"), "the emergency stop's subscriptions")
    button = watch.node.create_publisher(Bool, "/cell/stop", LATCHED)
    stranger = watch.node.create_publisher(Float64MultiArray, "/arm_controller/commands", 1)
    reasons: list[str] = []

    def refused(words: str) -> bool:
        reasons.append(watch.call("left/hand/arm")[1])
        return words in reasons[-1]

    watch.until(lambda: refused("/watch on action publishes commands too"), "the conflict by name")
    watch.node.destroy_publisher(stranger)
    button.publish(Bool(data=True))
    watch.until(lambda: refused("the emergency stop is pressed"), "the press")


def test_the_agent_under_another_name_and_with_a_remapped_camera(
    children: Children, checkpoint: str, watch: Watch, robot: Robot
) -> None:
    remaps = ("__ns:=/left", "__node:=driver", "camera/top/image_raw:=/cell/eye")
    parameters = {"checkpoint": checkpoint}
    children.node("agent", parameters, *[word for rule in remaps for word in ("-r", rule)])
    outputs = {
        ("/left/driver/chunk", "Float64MultiArray", RELIABLE, VOLATILE),
        ("/left/driver/heartbeat", "String", BEST_EFFORT, VOLATILE),
        ("/left/provenance", "DiagnosticArray", RELIABLE, VOLATILE),
    }
    inputs = {
        ("/cell/eye", "Image", BEST_EFFORT, VOLATILE),
        ("/left/joint_states", "JointState", BEST_EFFORT, VOLATILE),
        ("/left/prompt", "String", RELIABLE, KEPT),
        ("/left/actuator/state", "String", RELIABLE, KEPT),
    }
    watch.until(lambda: outputs <= published(watch, "/left/driver"), "the agent's topics")
    watch.until(lambda: inputs <= heard(watch, "/left/driver"), "the agent's subscriptions")
