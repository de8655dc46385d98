"""The two backends that a node may speak, and why one of them cannot be tested on this machine."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from auras_ros import ros

BACKENDS = ("dds", "rclpy")
RMW = "rmw_cyclonedds_cpp"  # services cross to no other


def why_not(backend: str) -> str:
    """Empty where nodes of this backend can be started and asked from here."""
    if backend == "dds":
        return "" if importlib.util.find_spec("cyclonedds") else "cyclonedds is not installed"
    if importlib.util.find_spec("rclpy") is None:
        return "rclpy is not installed"
    prefixes = [Path(each) for each in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if each]
    if not any((prefix / "lib" / f"lib{RMW}.so").exists() for prefix in prefixes):
        return f"{RMW} is not installed"
    if ros.BACKEND == "rclpy" and os.environ.get("RMW_IMPLEMENTATION") != RMW:
        return f"this test run speaks another RMW: set RMW_IMPLEMENTATION={RMW}, or AURAS_ROS_BACKEND=dds"
    return ""
