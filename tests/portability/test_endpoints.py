"""What a security policy allows a node is what the node has: its topics and services as the graph of the ROS under test
shows them.

Guards: a new topic that SROS 2 would deny, and a permission that no node needs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from auras_ros.nodes.actuator.endpoints import endpoints as of_actuator
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.agent.endpoints import endpoints as of_agent
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.button.endpoints import endpoints as of_button
from auras_ros.nodes.button.settings import ButtonSettings
from auras_ros.nodes.vlm.endpoints import endpoints as of_vlm
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros import BACKEND
from auras_ros.ros.endpoints import Endpoints
from auras_ros.sim.bridge.endpoints import endpoints as of_bridge
from auras_ros.sim.bridge.settings import bridge_settings
from auras_ros.sim.worlds import find
from tests.nodes.wire import Children, Watch
from tests.portability.asking import CONFIGURE, change

NAMESPACE = "/left"
IN_NAMESPACE = ("-r", f"__ns:={NAMESPACE}")
# A service that only some ROS has, what only some worlds have, and the clock of `use_sim_time`.
OPTIONAL = ("/get_type_description", "/left/prompt", "/clock")


@pytest.fixture
def watch(domain: int) -> Any:
    made = Watch(NAMESPACE)
    yield made
    made.close()


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_bytes(bytes(32))
    file.chmod(0o600)
    return str(file)


class Graph:
    """What one node has, by absolute names."""

    def __init__(self, watch: Watch, name: str) -> None:
        self._watch, self._name = watch.node, name

    def topics(self, infos: Callable[[str], list[Any]]) -> set[str]:
        node = (self._name, NAMESPACE)
        names = [topic for topic, _ in self._watch.get_topic_names_and_types()]
        return {each for each in names if any((info.node_name, info.node_namespace) == node for info in infos(each))}

    def publishes(self) -> set[str]:
        return self.topics(self._watch.get_publishers_info_by_topic)

    def subscribes(self) -> set[str]:
        return self.topics(self._watch.get_subscriptions_info_by_topic)

    def serves(self) -> set[str]:
        return {name for name, _ in self._watch.get_service_names_and_types_by_node(self._name, NAMESPACE)}


def difference(seen: set[str], allowed: Sequence[str]) -> tuple[list[str], list[str]]:
    """(had and not allowed, allowed and not had)."""
    denied = [name for name in seen if not any(fnmatchcase(name, each) for each in allowed)]
    unused = [each for each in allowed if not each.endswith(OPTIONAL) and not any(fnmatchcase(n, each) for n in seen)]
    return sorted(denied), sorted(unused)


def check(watch: Watch, nodes: Sequence[Endpoints]) -> None:
    """Wait until the graph shows exactly what is allowed."""
    for node in nodes:
        graph, allowed = Graph(watch, node.node), node.absolute(NAMESPACE)
        wanted = [(graph.publishes, allowed.publishes), (graph.subscribes, allowed.subscribes)]
        if BACKEND == "rclpy":  # our layer's graph tells no services
            wanted.append((graph.serves, allowed.serves))
        for seen, names in wanted:
            try:
                watch.until(lambda seen=seen, names=names: difference(seen(), names) == ([], []), node.node)
            except AssertionError:
                assert difference(seen(), names) == ([], []), f"{node.node}: denied, and allowed for nothing"


@pytest.mark.parametrize("simulated", [False, True])
def test_the_actuator(children: Children, watch: Watch, checkpoint: str, key: str, simulated: bool) -> None:
    more = {
        "joint_trajectory": True,
        "action_topic": "/arm/{node}/command",
        "joint_states_topic": "/robot/joint_states",
        "emergency_stops": ["emergency_stop", "pendant/stop"],
        "require_emergency_stop": True,
        "emergency_stop_key_file": key,
    }
    given = {"checkpoint": checkpoint, **(more if simulated else {})}
    children.node("actuator", {**given, "use_sim_time": simulated}, *IN_NAMESPACE)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    check(watch, of_actuator(ActuatorSettings(**given)))


def test_the_agent(children: Children, watch: Watch, checkpoint: str) -> None:
    given = {
        "checkpoint": checkpoint,
        "compressed": True,
        "autostart": False,
        "joint_states_topic": "/robot/joint_states",
    }
    children.node("agent", given, *IN_NAMESPACE)
    assert change(watch, f"{NAMESPACE}/agent", CONFIGURE)
    check(watch, of_agent(AgentSettings(**given)))


def test_the_vlm(children: Children, watch: Watch, vlm_folder: Path) -> None:
    given = {"checkpoint": str(vlm_folder), "cameras": "top,wrist", "autostart": False}
    given["camera_topics"] = ["top:=/camera/camera/color/image_raw"]
    children.node("vlm", given, *IN_NAMESPACE)
    assert change(watch, f"{NAMESPACE}/vlm", CONFIGURE)
    check(watch, of_vlm(VlmSettings(**{**given, "camera_topics": tuple(given["camera_topics"])})))


def test_a_bridge(children: Children, watch: Watch) -> None:
    bridge = (sys.executable, "-m", "auras_ros.sim.bridge.node", "--sim", "pusht", "--ros-args")
    children(*bridge, "-p", "publish_clock:=true", "-p", "viewer_px:=96", *IN_NAMESPACE)
    settings = bridge_settings(find("pusht"))(publish_clock=True, viewer_px=96)
    check(watch, of_bridge(settings))


@pytest.mark.parametrize("signed", [False, True])
def test_a_button(children: Children, watch: Watch, key: str, signed: bool) -> None:
    given = {"topic": "pendant/stop", "input": "lines", "emergency_stop_key_file": key if signed else ""}
    children.node("button", given, *IN_NAMESPACE)
    check(watch, of_button(ButtonSettings(**given)))
