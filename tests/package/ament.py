"""Finds what is installed as `ros2 run` and `ros2 launch` find it, and starts it as launch_ros does.

The search is that of ament_index_python, ros2pkg and ros2launch: prefixes in AMENT_PREFIX_PATH, a marker file in the
resource index, executables below lib/<package>, launch files anywhere below share/<package>.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from auras_ros.ros import (
    Context,
    DurabilityPolicy,
    Node,
    QoSProfile,
    ReliabilityPolicy,
    SignalHandlerOptions,
    SingleThreadedExecutor,
    init,
    try_shutdown,
)
from auras_ros.ros.msg import String
from auras_ros.ros.srv import GetParameters

PACKAGE = "auras_ros"
PATIENCE_S = 60.0
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
PARAMETERS = "/**:\n  ros__parameters:\n    realtime_priority: 0\n    arm_on_start: false\n    rate_hz: 50.0\n"
ROS_ARGUMENTS = (
    ["-r", "__node:=watchdog", "-r", "__ns:=/robot1"], ["-p", "blend_ms:=25.0"], ["-r", "action:=command"],
    ["--log-level", "warn"],
)  # fmt: skip


def prefix(ament_prefix_path: str) -> Path:
    """The first prefix of the path that has the package's marker."""
    folders = [Path(each) for each in ament_prefix_path.split(os.pathsep) if each]
    marker = Path("share", "ament_index", "resource_index", "packages", PACKAGE)
    found = [each for each in folders if (each / marker).is_file()]
    assert found, f"package '{PACKAGE}' not found, searching: {folders}"
    return found[0]


def executable(ament_prefix_path: str, name: str) -> Path:
    """What `ros2 run auras_ros NAME` starts."""
    folder = prefix(ament_prefix_path) / "lib" / PACKAGE
    found = [path for path in folder.rglob(name) if os.access(path, os.X_OK)]
    assert len(found) == 1, f"{name}: {found} of {sorted(folder.rglob('*'))}"
    return found[0]


def launch_file(ament_prefix_path: str, name: str) -> Path:
    """What `ros2 launch auras_ros NAME` reads: two of a name are refused there too."""
    share = prefix(ament_prefix_path) / "share" / PACKAGE
    found = [Path(root) / each for root, _, files in os.walk(share) for each in files if each == name]
    assert len(found) == 1, f"{name}: {found}"
    assert (share / "package.xml").is_file()
    return found[0]


@contextmanager
def running(program: Path, folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program with every kind of argument that launch_ros gives, ended with SIGINT as `ros2 launch` ends it."""
    file = folder / "parameters.yaml"
    file.write_text(PARAMETERS)
    words = [word for each in ROS_ARGUMENTS for word in each]
    command = [str(program), "--ros-args", *words, "--params-file", str(file)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def hear_the_actuator() -> dict[str, Any]:
    """Wait for an actuator started by `running`; what it says on its topics and of its parameters."""
    context = Context()
    init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = Node("listener", context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        heard: list[dict[str, Any]] = []
        node.create_subscription(String, "/robot1/watchdog/state", lambda m: heard.append(json.loads(m.data)), LATCHED)
        client = node.create_client(GetParameters, "/robot1/watchdog/get_parameters")

        def until(condition: Callable[[], Any], what: str) -> None:
            end_s = time.monotonic() + PATIENCE_S
            while not condition():
                assert time.monotonic() < end_s, f"not within {PATIENCE_S} s: {what}"
                executor.spin_once(timeout_sec=0.05)

        until(lambda: heard, "a state")
        until(client.service_is_ready, "the parameter services")
        until(lambda: node.count_publishers("/robot1/command") == 1, "a publisher on the remapped topic")
        future = client.call_async(GetParameters.Request(names=["rate_hz", "blend_ms", "realtime_priority"]))
        until(future.done, "an answer of the parameter services")
        rate, blend, priority = future.result().values
        # With Fast DDS a node's name comes by a topic of its own, later than its endpoints.
        until(lambda: ("watchdog", "/robot1") in node.get_node_names_and_namespaces(), "the node's name")
        return {
            "state": heard[0]["state"], "rate_hz": rate.double_value,
            "blend_ms": blend.double_value, "realtime_priority": priority.integer_value,
        }  # fmt: skip
    finally:
        try_shutdown(context=context)


HEARD = {"state": "disarmed", "rate_hz": 50.0, "blend_ms": 25.0, "realtime_priority": 0}
