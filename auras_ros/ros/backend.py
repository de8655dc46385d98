"""Which ROS this process speaks: rclpy where it imports, our DDS layer where it does not.

AURAS_ROS_BACKEND=rclpy or dds forces one. The choice is made once and holds for everything under auras_ros.ros.
"""

from __future__ import annotations

import importlib
import os

VARIABLE = "AURAS_ROS_BACKEND"


def choose() -> str:
    """'rclpy' or 'dds'. ValueError for another value of the variable, ImportError where rclpy is forced and absent."""
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
