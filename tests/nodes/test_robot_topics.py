"""A real robot's topics, with the real processes: a camera and joints of other names, prefixes and without stamps drive
the agent, by parameters and by remapping."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from auras_ros.ros import Node, qos_profile_sensor_data
from auras_ros.ros.image import image_message
from auras_ros.ros.msg import Image, JointState, String
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import Loop
from tests.nodes.wire import LATCHED, Children, Watch

REALSENSE = "/camera/camera/color/image_raw"
JOINTS = "/ur5/joint_states"
PATIENT = {"camera_age_limit_ms": 5000.0, "state_age_limit_ms": 5000.0, "actuator_timeout_ms": 1000.0}


class BoughtRobot:
    """A camera of 480 x 640 and joints with a prefix, on their drivers' own topics; neither is stamped. Beside them an
    actuator's sign of life."""

    def __init__(self, node: Node) -> None:
        self._pixels = np.full((480, 640, 3), 200, np.uint8)
        self._images = node.create_publisher(Image, REALSENSE, qos_profile_sensor_data)
        self._joints = node.create_publisher(JointState, JOINTS, qos_profile_sensor_data)
        self._actuator = node.create_publisher(String, "actuator/state", LATCHED)
        self._loop = Loop(0.05, self._step)

    def _step(self) -> None:
        self._actuator.publish(String(data=json.dumps({"mono_ns": time.monotonic_ns()})))
        names = ["ur5/agent_x", "ur5/agent_y", "ur5/wrist"]
        self._joints.publish(JointState(name=names, position=[100.0, 300.0, 0.0]))
        self._images.publish(image_message(self._pixels, stamp_ns=0, frame_id="color", encoding="rgb8"))

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def bought(watch: Watch) -> Iterator[BoughtRobot]:
    made = BoughtRobot(watch.node)
    yield made
    made.close()


Agent = Callable[..., Any]


@pytest.fixture
def agent(children: Children, checkpoint: str, watch: Watch) -> Agent:
    def start(*ros_arguments: str, **parameters: Any) -> Any:
        watch.hear_agent()
        return children.node("agent", {"checkpoint": checkpoint, **PATIENT, **parameters}, *ros_arguments)

    return start


RECEIPT = {"joint_prefix": "ur5/", "stamps": "receipt", "receipt_latency_ms": 30.0}


@pytest.mark.parametrize("way", ["parameters", "remapping"])
def test_a_bought_robot_drives_the_agent(bought: BoughtRobot, agent: Agent, watch: Watch, way: str) -> None:
    """Whose provenance says how the time of its inputs was known."""
    diagnosed = Diagnosed(watch)
    if way == "parameters":
        child = agent(**RECEIPT, camera_topics=[f"top:={REALSENSE}"], joint_states_topic=JOINTS)
    else:
        rules = (f"camera/top/image_raw:={REALSENSE}", f"joint_states:={JOINTS}")
        child = agent(*(word for rule in rules for word in ("-r", rule)), **RECEIPT)
    watch.until(lambda: watch.chunks and watch.provenance, "a chunk with its provenance")
    assert watch.chunks[-1]["stamps"] == "receipt, images 30 ms before"
    values = {pair.key: pair.value for pair in watch.provenance[-1].status[0].values}
    assert values["stamps"] == "receipt, images 30 ms before"
    diagnosed.until("agent: observation", "OK", "observations are received")
    values = diagnosed.values("agent: observation")
    assert (values["top topic"], values["top resized from"]) == (REALSENSE, "480 x 640")
    assert child.output.count("images are 480 x 640, the checkpoint's are 96 x 96") == 1


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, f"images are on {REALSENSE}: set camera_topics: [top:={REALSENSE}]"),
        ({"camera_topics": [f"top:={REALSENSE}"]}, "top: unstamped: not stamped (header.stamp is 0)"),
        (
            {"camera_topics": [f"top:={REALSENSE}"], "stamps": "receipt", "receipt_latency_ms": 0.0},
            f"joint states are on {JOINTS}: set joint_states_topic: {JOINTS}",
        ),
        (
            {
                "camera_topics": [f"top:={REALSENSE}"],
                "stamps": "receipt",
                "receipt_latency_ms": 0.0,
                "joint_states_topic": JOINTS,
            },
            "not agent_x, agent_y: set joint_prefix: ur5/",
        ),
    ],
    ids=["camera", "stamps", "joint states", "prefix"],
)
def test_each_thing_that_is_not_as_it_was_trained_is_named_with_its_parameter(
    bought: BoughtRobot, agent: Agent, watch: Watch, parameters: dict[str, Any], words: str
) -> None:
    """One after another, as a user mends them; the last mended is the test above."""
    diagnosed = Diagnosed(watch)
    agent(**parameters)
    diagnosed.until("agent: observation", "ERROR", words)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"camera_topics": ["front:=/cam"]}, "agent: camera_topics: 'front' is none of the cameras (top)"),
        ({"camera_topics": ["top"]}, "agent: camera_topics: expected camera:=topic"),
        ({"stamps": "receipt"}, "agent: stamps: receipt needs receipt_latency_ms"),
        ({"joint_states_topic": "joint states"}, "agent: joint_states_topic: 'joint states' is not a topic name"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(agent: Agent, parameters: dict[str, Any], words: str) -> None:
    child = agent(**parameters)
    assert child.wait() == 2
    assert words in child.output
