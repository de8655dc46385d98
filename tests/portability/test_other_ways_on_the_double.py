"""The nodes' other ways on the double of rclpy: twists, trajectories by the robot's limits, compressed images, and
names that a deployment gives them.

Guards: a call on a path that only some robots take, and a name that is looked up otherwise than rclpy does it: topics
that are created are remapped, and topics that are counted are not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.nodes.controllers import channel, contract_folder
from tests.portability.test_nodes_on_the_double import EVERY_BEAT, LATCHED, NEWEST, QUEUE, RELIABLE, has

Drive = Callable[..., dict[str, Any]]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Both axes in metres, which a description's limits can be compared with."""
    axes = [channel(name, unit="m", lower=0.0, upper=512.0, max_rate=4000.0) for name in ("agent_x", "agent_y")]
    return contract_folder(tmp_path / "table", axes, 100.0)


def test_a_mobile_base(drive: Drive, tmp_path: Path) -> None:
    speeds = [channel("linear.x", "velocity"), channel("angular.z", "velocity", unit="rad/s")]
    topic = "/diff_drive_controller/cmd_vel"
    outcome = drive(
        "base", checkpoint=contract_folder(tmp_path / "base", speeds), command="twist", action_topic=topic,
        measured_start=False, agent_timeout_ms=1000.0,
    )  # fmt: skip
    assert outcome["refused"] == []
    has(outcome, "publishers", [topic, "TwistStamped", *RELIABLE])
    facts = outcome["facts"]
    assert facts["twist"] == [[0.4, 0.0, 0.0], [0.0, 0.0, -0.2]]
    assert (facts["frame"], facts["stamped"], facts["disarm"]) == ("base_link", True, True)


def test_an_arm_whose_description_tells_its_limits(drive: Drive, table: str) -> None:
    outcome = drive(
        "arm", checkpoint=table, joint_trajectory=True, require_robot_description=True, agent_timeout_ms=1000.0
    )
    assert outcome["refused"] == []
    has(outcome, "publishers", ["/joint_trajectory", "JointTrajectory", *RELIABLE])
    has(outcome, "subscriptions", ["/robot_description", "String", *LATCHED])
    facts = outcome["facts"]
    assert facts["unreadable"] == "the contract's"
    assert facts["joints"] == ["agent_x", "agent_y"]
    assert facts["point"] == [["float", "float"], 0, True]
    assert facts["limits"] == "robot_description changed the limits"


def test_compressed_images(drive: Drive, checkpoint: str) -> None:
    outcome = drive("compressed", checkpoint=checkpoint, compressed=True)
    assert outcome["refused"] == []
    has(outcome, "subscriptions", ["/camera/top/image_raw/compressed", "CompressedImage", *NEWEST])
    assert outcome["facts"] == {"refused images": True, "chunk": "agent_x,agent_y"}


def test_the_agent_under_another_name(drive: Drive, checkpoint: str) -> None:
    outcome = drive(
        "agent elsewhere", "__ns:=/left", "__node:=driver", "camera/top/image_raw:=/cell/eye", checkpoint=checkpoint
    )
    assert outcome["refused"] == []
    has(
        outcome,
        "publishers",
        ["/left/driver/chunk", "Float64MultiArray", *RELIABLE],
        ["/left/driver/heartbeat", "String", *NEWEST],
        ["/left/provenance", "DiagnosticArray", *RELIABLE],
        ["/diagnostics", "DiagnosticArray", *RELIABLE],
    )
    has(
        outcome,
        "subscriptions",
        ["/cell/eye", "Image", *NEWEST],
        ["/left/prompt", "String", *LATCHED],
        ["/left/actuator/state", "String", *LATCHED],
    )
    facts = outcome["facts"]
    assert (facts["chunk"], facts["tasks"], facts["reset"]) == ("agent_x,agent_y", ["left/driver"], True)


def test_the_actuator_under_another_name(drive: Drive, table: str) -> None:
    outcome = drive(
        "actuator elsewhere", "__ns:=/left", "__node:=hand", "action:=/arm_controller/commands",
        "emergency_stop:=/cell/stop", checkpoint=table, agent_timeout_ms=1000.0, require_emergency_stop=True,
    )  # fmt: skip
    assert outcome["refused"] == []
    has(outcome, "publishers", ["/arm_controller/commands", "Float64MultiArray", *RELIABLE])
    has(outcome, "publishers", ["/left/hand/state", "String", *LATCHED])
    has(outcome, "subscriptions", ["/cell/stop", "Bool", *QUEUE], ["/left/agent/heartbeat", "String", *EVERY_BEAT])
    assert {"/left/hand/arm", "/left/hand/disarm", "/left/hand/stop"} <= {name for name, _ in outcome["services"]}
    facts = outcome["facts"]
    assert facts["stopped"] == "emergency stop pressed"
    [named] = facts["conflict"]
    assert named.startswith("/right/stranger on ")
    assert named in facts["refused arm"]
