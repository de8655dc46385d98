"""The same launch files over the real `launch` and `launch_ros`, where ROS 2 is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch_ros", reason="launch_ros is ROS 2's own and in no package index")
pytest.importorskip("lifecycle_msgs.msg", reason="lifecycle_msgs is ROS 2's own and in no package index")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("file", "nodes"), [("agent.launch.py", ["actuator", "agent"]), ("sim.launch.py", ["pusht"])])
def test_the_real_launch_walks_the_description(file: str, nodes: list[str]) -> None:
    from launch.launch_description_sources import get_launch_description_from_python_launch_file
    from launch_ros.actions import Node

    from launch import LaunchContext, LaunchIntrospector

    description = get_launch_description_from_python_launch_file(str(ROOT / "launch" / file))
    assert "config" in {each.name for each in description.get_launch_arguments()}
    assert LaunchIntrospector().format_launch_description(description)
    context = LaunchContext()
    made: list[Any] = [each.execute(context) or [] for each in description.entities]
    started = [each for actions in made for each in actions if isinstance(each, Node)]
    for each in started:
        each._perform_substitutions(context)
    assert [each.node_name for each in started] == [f"/{name}" for name in nodes]
