"""docs/nodes-of-your-own.md: both scripts are taken from the page and run as processes, as a reader would."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from auras_ros.ros.msg import Float64MultiArray, Image, MultiArrayDimension, MultiArrayLayout
from tests.nodes.wire import BEST_EFFORT, RELIABLE, Child, Children, Watch

PAGE = Path(__file__).parents[2] / "docs" / "nodes-of-your-own.md"


@pytest.fixture
def scripts(tmp_path: Path) -> dict[str, Path]:
    """File name -> the file, by the first line of each."""
    found = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        name = code.partition("\n")[0].strip('"')
        found[name] = tmp_path / name
        found[name].write_text(code)
    return found


def ends(child: Child) -> None:
    child.send(signal.SIGTERM)
    assert child.wait() == 0
    assert "Traceback" not in child.output


def test_the_controller_takes_commands_and_sees_their_end(
    children: Children, watch: Watch, scripts: dict[str, Path]
) -> None:
    child = children(sys.executable, str(scripts["my_controller.py"]))
    publisher = watch.node.create_publisher(Float64MultiArray, "action", RELIABLE)
    told = {"state": "armed", "source": "chunk", "index": 0, "age_ns": 1, "request": 1, "tick": 1, "mono_ns": 1}
    dims = [
        MultiArrayDimension(label="x,y", size=2, stride=2),
        MultiArrayDimension(label=json.dumps(told), size=1, stride=1),
    ]

    def moved() -> bool:
        publisher.publish(Float64MultiArray(layout=MultiArrayLayout(dim=dims, data_offset=0), data=[1.0, 2.5]))
        return "move to {'x': 1.0, 'y': 2.5}" in child.output

    watch.until(moved, "a command that arrives")
    watch.until(lambda: child.output.endswith("no command any more: hold\n"), "its end")
    ends(child)


def test_the_camera_is_one_that_an_agent_takes(children: Children, watch: Watch, scripts: dict[str, Path]) -> None:
    heard: list[Image] = []
    watch.node.create_subscription(Image, "camera/top/image_raw", heard.append, BEST_EFFORT)
    child = children(sys.executable, str(scripts["my_camera.py"]))
    watch.until(lambda: len(heard) > 2, "images")
    assert (heard[-1].height, heard[-1].width, heard[-1].encoding, heard[-1].step) == (96, 96, "rgb8", 288)
    ends(child)
