"""The services that node code uses: `from auras_ros.ros.srv import Trigger, SetBool, ChangeState`.

All are rclpy's own if the backend is rclpy, otherwise all are ours; each is created at its first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from .backend import BACKEND

_PACKAGES = {
    "lifecycle_msgs": ("ChangeState", "GetAvailableStates", "GetAvailableTransitions", "GetState"),
    "rcl_interfaces": ("DescribeParameters", "GetParameters", "GetParameterTypes", "ListParameters",
                       "SetParameters", "SetParametersAtomically"),
    "std_srvs": ("Empty", "SetBool", "Trigger"),
}  # fmt: skip
_MODULES = {name: f"{package}.srv" for package, names in _PACKAGES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no service {name!r}")
    source = _MODULES[name] if BACKEND == "rclpy" else "auras_ros.ros.dds.srvtypes"
    globals()[name] = made = getattr(importlib.import_module(source), name)
    return made


def __dir__() -> list[str]:
    return sorted(_MODULES)
