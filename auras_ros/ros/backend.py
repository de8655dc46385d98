"""Which ROS this process uses, and why: rclpy if it can be imported, otherwise our DDS layer.

AURAS_ROS_BACKEND=rclpy or dds forces one. The choice is made once, for everything under auras_ros.ros.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass

VARIABLE = "AURAS_ROS_BACKEND"


@dataclass(frozen=True)
class BackendChoice:
    backend: str
    """'rclpy' or 'dds'."""
    reason: str
    """Why, for a person: ends a sentence that begins with "because"."""


def choose() -> BackendChoice:
    """Raises ValueError for another value of VARIABLE, ImportError if a forced rclpy is missing."""
    forced = os.environ.get(VARIABLE, "")
    if forced not in ("", "rclpy", "dds"):
        raise ValueError(f"{VARIABLE} is {forced!r}, expected rclpy or dds")
    if forced == "dds":
        return BackendChoice("dds", f"{VARIABLE}=dds")
    try:
        importlib.import_module("rclpy")
    except ImportError as error:
        if forced == "rclpy":
            raise ImportError(f"{VARIABLE}=rclpy, but rclpy does not import: {error}") from error
        return BackendChoice("dds", f"rclpy does not import: {error}")
    return BackendChoice("rclpy", f"{VARIABLE}=rclpy" if forced else "rclpy imports")


CHOICE = choose()
BACKEND = CHOICE.backend
