"""Which ROS 2 installations the paths of this process lead to. None of them is imported or loaded here.

The wheels of PyPI (ros-jazzy-rclpy, ros-kilted-rclpy …) are somebody's builds, not ROS's own: when Python starts, their
ros-wheels-bootstrapper puts every library folder into LD_LIBRARY_PATH in the order of a set, which is random.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

CYCLONE = "rmw_cyclonedds_cpp"
FAST = "rmw_fastrtps_cpp"
MIXED_REMEDY = (
    "Use one: a shell in which no other ROS 2 is sourced (AMENT_PREFIX_PATH, PYTHONPATH and LD_LIBRARY_PATH without "
    "it), or a Python environment without the wheels (pip uninstall ros-wheels-bootstrapper ros-rclpy)"
)


def wheels_prefix() -> Path | None:
    """The environment in which the ROS wheels of PyPI are installed, which this Python may only see; None without."""
    spec = importlib.util.find_spec("ros_wheels_bootstrapper")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parents[4]  # PREFIX/lib/python3.11/site-packages/NAME/FILE


def has_wheels() -> bool:
    """Whether this Python sees the ROS wheels of PyPI."""
    return wheels_prefix() is not None


def available_rmws(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The RMWs that are installed where ROS 2 is sourced, and beside this Python (the wheels of PyPI), sorted."""
    names: set[str] = set()
    for prefix in [*_folders(environment, "AMENT_PREFIX_PATH"), Path(sys.prefix)]:
        index = prefix / "share" / "ament_index" / "resource_index" / "rmw_typesupport"
        names |= {entry.name for entry in index.glob("rmw_*") if entry.name != "rmw_implementation"}
    return sorted(names)


def sourced_beside_wheels(environment: Mapping[str, str] = os.environ) -> str:
    """The folder of a ROS 2 that is sourced beside the wheels of PyPI; '' if there are not both."""
    own = wheels_prefix()
    if own is None:
        return ""
    for variable, mark in (
        ("AMENT_PREFIX_PATH", "lib/librcl.so"),
        ("PYTHONPATH", "rclpy/__init__.py"),
        ("LD_LIBRARY_PATH", "librcl.so"),
    ):
        for folder in _folders(environment, variable):
            file = folder / mark
            if file.exists() and not file.resolve().is_relative_to(own):
                return str(folder)
    return ""


def mixed(folder: str) -> str:
    """What is wrong with the wheels beside the ROS 2 in this folder."""
    return (
        f"the ROS wheels of PyPI (in {sys.prefix}) and another ROS 2 ({folder}) are both here: each process gets its "
        "libraries from one or the other at random, and some crash"
    )


def _folders(environment: Mapping[str, str], variable: str) -> list[Path]:
    return [Path(entry) for entry in environment.get(variable, "").split(os.pathsep) if entry]
