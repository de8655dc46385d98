"""The scripts that play the rest of the robot for one node on the double of rclpy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import rclpy_control as ros
from lifecycle_msgs.msg import Transition
from rclpy.event_handler import Counted, Incompatible, RmwQosPolicyKind
from rclpy.parameter import Parameter

from auras_ros.action import Chunk, Provenance
from auras_ros.nodes.actuator import node as actuator
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.nodes.agent import node as agent
from auras_ros.nodes.common.messages import chunk_message, host_id, json_message, read_action
from auras_ros.nodes.vlm import node as vlm
from auras_ros.ros.image import image_message, to_time_msg
from auras_ros.ros.msg import Bool, Header, JointState, String
from auras_ros.sim.bridge import node as bridge

NAMES = ["agent_x", "agent_y"]
Facts = dict[str, Any]


class Feed:
    """Delivers what a callable makes, at a fixed rate, until closed."""

    def __init__(self, period_s: float, *sources: Callable[[], tuple[str, Any]]) -> None:
        self._ended = threading.Event()

        def run() -> None:
            while not self._ended.wait(period_s):
                for source in sources:
                    ros.deliver(*source())

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def joint_states() -> tuple[str, Any]:
    header = Header(stamp=to_time_msg(time.time_ns()), frame_id="table")
    return "/joint_states", JointState(header=header, name=NAMES, position=[100.0, 300.0])


def image() -> tuple[str, Any]:
    pixels = np.full((96, 96, 3), 200, np.uint8)
    made = image_message(pixels, stamp_ns=time.time_ns(), frame_id="top", encoding="rgb8")
    return "/camera/top/image_raw", made


def actuator_state() -> tuple[str, Any]:
    return "/actuator/state", json_message({"mono_ns": time.monotonic_ns(), "state": "disarmed"})


def heartbeat() -> tuple[str, Any]:
    beat = {"session": "fake", "frame": 1, "state": "running", "lifecycle": "active"}
    return "/agent/heartbeat", json_message(beat)


def chunks() -> Callable[[], tuple[str, Any]]:
    contract, request = load_contract("pusht"), iter(range(1, 10**6))

    def chunk() -> tuple[str, Any]:
        number = next(request)
        values = np.stack([100.0 + np.arange(16), 300.0 - np.arange(16)], axis=1)
        provenance = Provenance(
            origin_stamp_ns=time.time_ns(), origin_mono_ns=time.monotonic_ns(), host=host_id(), session="fake",
            frame=number, request=number,
        )  # fmt: skip
        return "/agent/chunk", chunk_message(Chunk(values, provenance), contract)

    return chunk


def refuse_a_parameter(node: str, name: str, value: Any, facts: Facts) -> None:
    result = ros.set_parameter(node, Parameter(name, value=value))
    facts["parameters"] = sorted(ros.node(node)._double_parameters.values)
    facts["set"] = [result.successful, result.reason]


def qos_events(topic: str, facts: Facts) -> None:
    """Incompatible QoS as rclpy's C part reports it, and what diagnostics make of it."""
    info = Incompatible(1, 1, RmwQosPolicyKind.RMW_QOS_POLICY_RELIABILITY)
    facts["event endpoints"] = ros.event(topic, "incompatible_qos", info)

    def told(message: Any) -> list[str]:
        keys = [pair.key for status in message.status for pair in status.values]
        return [key for key in keys if "incompatible" in key]

    facts["incompatible"] = told(ros.heard("/diagnostics", told, "incompatible QoS as a diagnostic").message)
    ros.event(topic, "deadline", Counted(1, 1))


def drive_actuator(facts: Facts) -> None:
    ros.heard("/actuator/state", lambda m: True, "the actuator lives")
    refuse_a_parameter("actuator", "rate_hz", 5.0, facts)
    answer = ros.call("/actuator/arm")
    facts["arm alone"] = [answer.success, answer.message]
    with Feed(0.02, joint_states, heartbeat), Feed(0.1, chunks()):
        arm()
        action = ros.heard("/action", lambda m: read_action(m)[1].state == "armed", "an action of a chunk")
        facts["action"] = [list(action.message.data), action.message.layout.dim[0].label]
        facts["stop"] = ros.call("/actuator/stop").success
        ros.heard("/action", lambda m: read_action(m)[1].state == "stopped", "a hold command", action.number)
        facts["disarm"] = ros.call("/actuator/disarm").success
        emergency_stop(facts)
        jump(facts)
    qos_events("/agent/chunk", facts)


def arm() -> None:
    ros.until(lambda: ros.call("/actuator/arm").success, "the actuator arms")


def state_of_actuator(state: str, after: int) -> None:
    ros.heard("/actuator/state", lambda m: json.loads(m.data)["state"] == state, f"state {state}", after)


def emergency_stop(facts: Facts) -> None:
    """Nobody says whose a word is, so that a service alone releases; a release at once does not."""
    arm()
    before = len(ros.sent)
    for pressed in (True, False):
        ros.tell("/emergency_stop", Bool(data=pressed))
    state_of_actuator("stopped", before)
    ros.until(lambda: ros.call("/actuator/disarm").success, "the actuator disarms")
    facts["not released"] = ros.call("/actuator/arm").message
    ros.until(lambda: ros.call("/actuator/release_stop").success, "the stop is released")


def jump(facts: Facts) -> None:
    """The clock of /clock goes back, as rclpy tells it."""
    arm()
    before = len(ros.sent)
    ros.node("actuator").get_clock()._jump(-1_000_000_000)
    state_of_actuator("disarmed", before)
    facts["jump"] = "disarmed"


def change(transition: int, node: str = "agent") -> bool:
    return bool(ros.call(f"/{node}/change_state", transition=Transition(id=transition)).success)


def state() -> str:
    return str(ros.call("/agent/get_state").current_state.label)


def drive_agent(facts: Facts) -> None:
    facts["states"] = [state()]
    refuse_a_parameter("agent", "seed", -1, facts)
    facts["illegal"] = [change(transition) for transition in (2, 3, 4)]  # rclpy raises there
    for transition in (1, 3):
        assert change(transition), f"transition {transition}"
        facts["states"].append(state())
    beat = ros.heard("/agent/heartbeat", lambda m: json.loads(m.data)["lifecycle"] == "active", "an active heartbeat")
    facts["heartbeat"] = sorted(json.loads(beat.message.data))
    with Feed(0.05, joint_states, actuator_state, image):
        chunk = ros.heard("/agent/chunk", lambda m: True, "a chunk")
        facts["chunk"] = [[d.label, d.size, d.stride] for d in chunk.message.layout.dim[:2]]
        ros.heard("/provenance", lambda m: True, "its provenance")
        facts["reset"] = ros.call("/agent/reset").success
        ros.heard("/agent/chunk", lambda m: True, "a chunk after the reset", chunk.number + 1)
    qos_events("/camera/top/image_raw", facts)
    for transition in (4, 2):
        assert change(transition), f"transition {transition}"
        facts["states"].append(state())


def drive_vlm(facts: Facts) -> None:
    refuse_a_parameter("vlm", "running", 0, facts)
    facts["changed"] = [change(transition, "vlm") for transition in (2, 1, 3)]  # rclpy raises at the first
    with Feed(0.05, image):
        question = String(data=json.dumps({"text": "where is the tee?", "camera": "top", "max_tokens": 2}))
        with Feed(0.2, lambda: ("/question", question)):
            answer = ros.heard("/answer", lambda m: json.loads(m.data)["finish"] in ("stop", "length"), "an answer")
        ros.heard("/answer/stream", lambda m: True, "a piece")
    facts["answer"] = json.loads(answer.message.data)["image"]["camera"]
    facts["changed"] += [change(transition, "vlm") for transition in (4, 2)]


def drive_bridge(facts: Facts) -> None:
    refuse_a_parameter("pusht", "seed", -1, facts)
    camera = ros.heard("/camera/top/image_raw", lambda m: True, "an image")
    facts["image"] = [camera.message.height, camera.message.width, camera.message.encoding, len(camera.message.data)]
    ros.heard("/joint_states", lambda m: m.name == NAMES, "joint states")
    status = ros.heard("/pusht/status", lambda m: True, "a status")
    answer = ros.call("/pusht/reset")
    facts["reset"] = [answer.success, sorted(json.loads(answer.message))]
    ros.heard("/pusht/status", lambda m: True, "a status after the reset", status.number + 1)


SCRIPTS: dict[str, tuple[Callable[[list[str]], int], Callable[[Facts], None]]] = {
    "actuator": (actuator.main, drive_actuator),
    "agent": (agent.main, drive_agent),
    "vlm": (vlm.main, drive_vlm),
    "bridge": (bridge.main, drive_bridge),
}
