"""The services that node code uses: `from auras_ros.ros.srv import Trigger, SetBool, Empty`."""

from __future__ import annotations

import importlib
from typing import Any

from .backend import BACKEND

_source = importlib.import_module("std_srvs.srv" if BACKEND == "rclpy" else "auras_ros.ros.dds.srvtypes")
Empty: Any = _source.Empty
SetBool: Any = _source.SetBool
Trigger: Any = _source.Trigger

__all__ = ["Empty", "SetBool", "Trigger"]
