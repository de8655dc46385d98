"""Which ROS this process uses: rclpy if it can be imported, otherwise our DDS layer.

AURAS_ROS_BACKEND=rclpy or dds forces one. The choice is made once, for everything under auras_ros.ros.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "AURAS_ROS_BACKEND"


def choose() -> str:
    """'rclpy' or 'dds'. Raises ValueError for another value of VARIABLE, ImportError if a forced rclpy is missing."""
    forced = os.environ.get(VARIABLE, "")
    if forced not in ("", "rclpy", "dds"):
        raise ValueError(f"{VARIABLE} is {forced!r}, expected rclpy or dds")
    if forced == "dds":
        return "dds"
    try:
        importlib.import_module("rclpy")
    except ImportError as error:
        if forced == "rclpy":
            raise ImportError(f"{VARIABLE}=rclpy, but rclpy does not import: {error}") from error
        return "dds"
    return "rclpy"


BACKEND = choose()
