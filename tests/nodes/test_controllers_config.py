"""The controllers' configurations: every parameter is one its node has, and the actuator takes them as they are."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.config import read_config
from tests.nodes.controllers import channel, contract_folder
from tests.nodes.wire import Children, Watch

FOLDER = Path(__file__).resolve().parents[2] / "config"
NAMES = ("forward_command.yaml", "joint_trajectory.yaml", "mobile_base.yaml", "two_arms.yaml")
ARMS = [f"{side}_joint_{n}" for side in ("left", "right") for n in range(1, 8)]
CHANNELS = {
    "forward_command.yaml": [channel("elbow")],
    "joint_trajectory.yaml": [channel("elbow")],
    "mobile_base.yaml": [channel("linear.x", "velocity"), channel("angular.z", "velocity", unit="rad/s")],
    "two_arms.yaml": [channel(name) for name in ARMS],
}


def section(name: str, node: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())[node]["ros__parameters"]
    return values


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("node", "settings"), [("actuator", ActuatorSettings), ("agent", AgentSettings)])
def test_every_parameter_is_one_of_its_node_and_of_its_type(name: str, node: str, settings: Any) -> None:
    known = {each.name: each.default for each in fields(settings)}
    for key, value in section(name, node).items():
        assert key in known, f"{name}: {key}"
        assert type(value) is type(known[key]), f"{name}: {key}"


@pytest.mark.parametrize("name", NAMES)
def test_a_robot_is_armed_by_hand_beside_an_emergency_stop(name: str) -> None:
    given = section(name, "actuator")
    assert given["arm_on_start"] is False
    assert given["require_emergency_stop"] is True
    supervision = read_config(FOLDER / name).supervision
    assert (supervision.processes, supervision.respawn) == (("actuator", "agent"), True)


@pytest.mark.parametrize("name", NAMES)
def test_the_actuator_starts_with_it(children: Children, watch: Watch, tmp_path: Path, name: str) -> None:
    folder = contract_folder(tmp_path / "policy", CHANNELS[name])
    given = section(name, "actuator")
    children.node("actuator", {**given, "checkpoint": folder})
    topics = [given.get("action_topic", "action")]
    if given.get("joint_trajectory"):
        topics.append(given["trajectory_topic"])
    for topic in topics:
        watch.until(lambda t=topic: watch.node.count_publishers(t) == 1, f"a publisher of {topic}")
