"""More scripts for the double of rclpy: other controllers, other inputs, other names."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
import rclpy_control as ros
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile

from auras_ros.action import Chunk, Contract, Provenance
from auras_ros.nodes.actuator import node as actuator
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.nodes.agent import node as agent
from auras_ros.nodes.common.messages import chunk_message, host_id, read_action
from auras_ros.ros.image import compressed_message
from auras_ros.ros.msg import Bool, Float64MultiArray, String
from tests.portability.children.scripts import Facts, Feed, actuator_state, arm, change, heartbeat, image, joint_states

CAMERA = "/camera/top/image_raw/compressed"
LIMITS = '<joint name="{}" type="prismatic"><limit lower="0" upper="{}" velocity="500" effort="1"/></joint>'
Source = Callable[[], tuple[str, Any]]


def moved(source: Source, prefix: str) -> Source:
    """The same under other names: '/agent/heartbeat' as '/left/agent/heartbeat'."""

    def there() -> tuple[str, Any]:
        topic, message = source()
        return prefix + topic, message

    return there


def chunks(contract: Contract, first: list[float], step: list[float], topic: str = "/agent/chunk") -> Source:
    """Chunks of sixteen actions, each channel at its own pace from its own beginning."""
    request = iter(range(1, 10**6))

    def chunk() -> tuple[str, Any]:
        number = next(request)
        values = np.array(first) + np.arange(16)[:, None] * np.array(step)
        provenance = Provenance(
            origin_stamp_ns=time.time_ns(), origin_mono_ns=time.monotonic_ns(), host=host_id(), session="fake",
            frame=number, request=number,
        )  # fmt: skip
        return topic, chunk_message(Chunk(values, provenance), contract)

    return chunk


def contract_of(node: str) -> Contract:
    """What the node itself was given, as soon as it has declared the parameter."""
    given = ros.node(node)._double_parameters.values
    return load_contract(ros.until(lambda: given.get("checkpoint"), f"{node}'s checkpoint").value)


def state_where(condition: Callable[[dict[str, Any]], bool], what: str, topic: str = "/actuator/state") -> Any:
    after = len(ros.sent)
    return json.loads(ros.heard(topic, lambda m: condition(json.loads(m.data)), what, after).message.data)


# -- controllers ------------------------------------------------------------------------------------------


def drive_base(facts: Facts) -> None:
    """A mobile base: twists by the names of the channels, zero as the last word."""
    topic = "/diff_drive_controller/cmd_vel"
    with Feed(0.02, heartbeat), Feed(0.1, chunks(contract_of("actuator"), [0.4, -0.2], [0.0, 0.0])):
        arm()
        driven = ros.heard(topic, lambda m: m.twist.linear.x == 0.4, "the base drives").message
        facts["twist"] = [
            [getattr(part, axis) for axis in "xyz"] for part in (driven.twist.linear, driven.twist.angular)
        ]
        facts["frame"], facts["stamped"] = driven.header.frame_id, driven.header.stamp.sec > 0
        before = len(ros.sent)
        facts["disarm"] = ros.call("/actuator/disarm").success
        ros.heard(topic, lambda m: m.twist.linear.x == 0.0, "the final zero", before)


def drive_arm(facts: Facts) -> None:
    """A JointTrajectoryController, with limits that come from the robot's description, and then from another one."""

    def describe(upper: float) -> None:
        joints = "".join(LIMITS.format(name, upper) for name in ("agent_x", "agent_y"))
        ros.tell("/robot_description", String(data=f'<robot name="table">{joints}</robot>'))

    with Feed(0.02, joint_states, heartbeat), Feed(0.1, chunks(contract_of("actuator"), [100.0, 300.0], [1.0, -1.0])):
        ros.until(lambda: "robot_description" in ros.call("/actuator/arm").message, "the refusal without one")
        ros.tell("/robot_description", String(data="<robot"))
        facts["unreadable"] = state_where(lambda state: state["unreadable"] == 1, "it was refused")["limits"]
        describe(400.0)
        arm()
        horizon = ros.heard("/joint_trajectory", lambda m: len(m.points) > 1, "a horizon").message
        facts["joints"] = list(horizon.joint_names)
        facts["point"] = [
            [type(value).__name__ for value in horizon.points[0].positions],
            len(horizon.points[0].velocities),
            horizon.points[1].time_from_start.nanosec > 0,
        ]
        before = len(ros.sent)
        describe(350.0)
        facts["limits"] = state_where(lambda state: state["state"] == "disarmed", "other limits disarm")["reason"]
        ros.heard("/joint_trajectory", lambda m: len(m.points) == 1, "the place to stay at", before)


# -- inputs -----------------------------------------------------------------------------------------------


def compressed(data: bytes) -> tuple[str, Any]:
    return CAMERA, compressed_message(data, format="rgb8; png", stamp_ns=time.time_ns(), frame_id="top")


def drive_compressed(facts: Facts) -> None:
    good = cv2.imencode(".png", np.full((96, 96, 3), 90, np.uint8))[1].tobytes()
    for transition in (1, 3):
        assert change(transition), f"transition {transition}"

    def told(message: Any) -> list[str]:
        return [pair.value for status in message.status for pair in status.values if pair.key == "top refused"]

    with Feed(0.05, joint_states, actuator_state, partial(compressed, good[:-20])):
        refused = ros.heard("/diagnostics", lambda m: any(value != "0" for value in told(m)), "refused images").message
        facts["refused images"] = int(told(refused)[0]) > 0
    with Feed(0.05, joint_states, actuator_state, partial(compressed, good)):
        facts["chunk"] = ros.heard("/agent/chunk", lambda m: True, "a chunk").message.layout.dim[1].label
    for transition in (4, 2):
        assert change(transition), f"transition {transition}"


# -- names ------------------------------------------------------------------------------------------------


def agent_elsewhere(facts: Facts) -> None:
    """`-r __ns:=/left -r __node:=driver`, and a camera that somebody else's node publishes."""
    assert ros.call("/left/driver/change_state", transition=_transition(1)).success
    assert ros.call("/left/driver/change_state", transition=_transition(3)).success
    picture = lambda: ("/cell/eye", image()[1])  # noqa: E731
    with Feed(0.05, picture, *(moved(source, "/left") for source in (joint_states, actuator_state))):
        facts["chunk"] = ros.heard("/left/driver/chunk", lambda m: True, "a chunk").message.layout.dim[1].label
        told = ros.heard("/diagnostics", lambda m: bool(m.status), "diagnostics").message
        facts["tasks"] = sorted({status.name.partition(": ")[0] for status in told.status})
    facts["reset"] = ros.call("/left/driver/reset").success


def _transition(number: int) -> Any:
    from lifecycle_msgs.msg import Transition

    return Transition(id=number)


def actuator_elsewhere(facts: Facts) -> None:
    """In a namespace, under another name, with the command and the emergency stop where others have them; and beside
    another one that publishes commands, whom it must find under the name that the topic has now."""
    contract = contract_of("hand")
    reliable = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    button = Node("button", use_global_arguments=False).create_publisher(Bool, "/cell/stop", reliable)
    sources = [moved(source, "/left") for source in (joint_states, heartbeat)]
    drive = chunks(contract, [100.0, 300.0], [1.0, -1.0], "/left/agent/chunk")
    with Feed(0.02, *sources), Feed(0.1, drive):
        ros.tell("/cell/stop", Bool(data=False))
        ros.until(lambda: ros.call("/left/hand/arm").success, "it arms")
        ros.heard("/arm_controller/commands", lambda m: read_action(m)[1].state == "armed", "a command")
        ros.tell("/cell/stop", Bool(data=True))
        facts["stopped"] = state_where(lambda s: s["state"] == "stopped", "stopped", "/left/hand/state")["reason"]
        ros.tell("/cell/stop", Bool(data=False))
        ros.until(lambda: ros.call("/left/hand/disarm").success, "it disarms")
        ros.until(lambda: ros.call("/left/hand/release_stop").success, "the stop is released")
        stranger = Node("stranger", namespace="/right", use_global_arguments=False)
        stranger.create_publisher(Float64MultiArray, "/arm_controller/commands", 10)
        facts["conflict"] = state_where(lambda s: bool(s["conflict"]), "the stranger", "/left/hand/state")["conflict"]
        facts["refused arm"] = ros.call("/left/hand/arm").message
    button.destroy()


SCRIPTS: dict[str, tuple[Callable[[list[str]], int], Callable[[Facts], None]]] = {
    "base": (actuator.main, drive_base),
    "arm": (actuator.main, drive_arm),
    "compressed": (agent.main, drive_compressed),
    "agent elsewhere": (agent.main, agent_elsewhere),
    "actuator elsewhere": (actuator.main, actuator_elsewhere),
}
