"""The facade is rclpy where rclpy imports and our layer where it does not: all real, or all ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from auras_ros import ros
from auras_ros.ros import dds, msg, srv

ROOT = Path(__file__).parents[2]
# A double that says of every name where it came from.
DOUBLE = """
import sys
class _Module:
    def __init__(self, name): self.__name__, self.__path__ = name, []
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        if name == "rclpy_implementation": return self  # whose function for log lines is replaced
        return f"{self.__name__}:{name}"
import importlib.machinery
class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rclpy", "sensor_msgs", "std_srvs", "builtin_interfaces", "rosgraph_msgs",
                                  "lifecycle_msgs"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec): return _Module(spec.name)
    def exec_module(self, module): pass
sys.meta_path.insert(0, _Finder())
"""
REPORT = """
from auras_ros import ros
from auras_ros.ros.msg import Image, ClockMsg, TimeMsg
from auras_ros.ros.srv import ChangeState, Trigger
import sys
print(ros.BACKEND, ros.Node, ros.QoSProfile, ros.SingleThreadedExecutor, ros.ExternalShutdownException, ros.Parameter,
      ros.SubscriptionEventCallbacks, ros.init.__module__, ros.LifecycleNode, ros.TransitionCallbackReturn, Image,
      ClockMsg, Trigger, ChangeState, "cyclonedds" in sys.modules, sep="\\n")
"""


def run(code: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "AURAS_ROS_BACKEND": ""} | environment
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=60)


def test_rclpy_is_taken_whole_where_it_imports(tmp_path: Path) -> None:
    done = run(DOUBLE + REPORT, tmp_path)
    assert done.stdout.split("\n") == [
        "rclpy", "rclpy.node:Node", "rclpy.qos:QoSProfile", "rclpy.executors:SingleThreadedExecutor",
        "rclpy.executors:ExternalShutdownException", "rclpy.parameter:Parameter",
        "rclpy.event_handler:SubscriptionEventCallbacks", "auras_ros.ros.fastdds",
        "rclpy.lifecycle:LifecycleNode", "rclpy.lifecycle:TransitionCallbackReturn", "sensor_msgs.msg:Image",
        "rosgraph_msgs.msg:Clock", "std_srvs.srv:Trigger", "lifecycle_msgs.srv:ChangeState", "False", "",
    ], done.stderr  # fmt: skip


def test_our_layer_is_taken_where_rclpy_is_absent_or_broken(tmp_path: Path) -> None:
    assert run(REPORT, tmp_path).stdout.startswith("dds\n<class 'auras_ros.ros.dds.node.Node'>")
    (tmp_path / "rclpy").mkdir()
    (tmp_path / "rclpy/__init__.py").write_text("raise ImportError('built for another Python')")
    assert run(REPORT, tmp_path).stdout.startswith("dds\n")
    forced = run(REPORT, tmp_path, AURAS_ROS_BACKEND="rclpy")
    assert forced.returncode == 1
    assert "built for another Python" in forced.stderr


def test_the_variable_forces_one(tmp_path: Path) -> None:
    assert run(DOUBLE + REPORT, tmp_path, AURAS_ROS_BACKEND="dds").stdout.startswith("dds\n")
    wrong = run(REPORT, tmp_path, AURAS_ROS_BACKEND="zenoh")
    assert "AURAS_ROS_BACKEND is 'zenoh'" in wrong.stderr


def test_the_facade_has_the_names_that_our_layer_exports() -> None:
    """Guards: a name that type checkers find in the facade, and that is not there at run time (or the other way)."""
    exported = [name for name, each in vars(dds).items() if name[0] != "_" and not isinstance(each, ModuleType)]
    assert sorted(ros.__all__) == sorted(["BACKEND", *exported])


def test_every_name_of_the_facade_is_there() -> None:
    for name in ros.__all__:
        assert getattr(ros, name) is not None
    with pytest.raises(AttributeError, match="Imaginary"):
        _ = msg.Imaginary
    with pytest.raises(AttributeError, match="Imaginary"):
        _ = srv.Imaginary
    for module in (msg, srv):
        for name in dir(module):
            assert getattr(module, name) is not None
