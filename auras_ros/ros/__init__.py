"""ROS 2 for the nodes: rclpy if it is installed, otherwise our layer on Cyclone DDS, with the same wire protocol.

Names and signatures are rclpy's (Jazzy), so that node code is the same on both. Messages come from
`auras_ros.ros.msg`, services from `auras_ros.ros.srv`: all are rclpy's, or all are ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import supported
from .backend import BACKEND

if TYPE_CHECKING:
    from .dds import *  # noqa: F403

# The rclpy module of each name; our layer has all of them in one module.
_RCLPY = {
    "rclpy": ("create_node", "init", "ok", "shutdown", "spin", "spin_once", "spin_until_future_complete",
              "try_shutdown"),
    "rclpy.clock": ("Clock", "ClockType", "JumpThreshold"),
    "rclpy.context": ("Context",),
    "rclpy.duration": ("Duration",),
    "rclpy.event_handler": ("PublisherEventCallbacks", "SubscriptionEventCallbacks"),
    "rclpy.exceptions": ("ParameterAlreadyDeclaredException", "ParameterNotDeclaredException",
                         "ParameterUninitializedException", "InvalidParameterTypeException",
                         "InvalidParameterValueException"),
    "rclpy.executors": ("ExternalShutdownException", "SingleThreadedExecutor"),
    "rclpy.lifecycle": ("LifecycleNode", "LifecycleState", "TransitionCallbackReturn"),
    "rclpy.logging": ("LoggingSeverity", "get_logger"),
    "rclpy.node": ("Node",),
    "rclpy.parameter": ("Parameter",),
    "rclpy.qos": ("DurabilityPolicy", "HistoryPolicy", "LivelinessPolicy", "QoSPolicyKind", "QoSProfile",
                  "ReliabilityPolicy", "qos_policy_name_from_kind", "qos_profile_sensor_data",
                  "qos_profile_services_default", "qos_profile_system_default"),
    "rclpy.serialization": ("deserialize_message",),
    "rclpy.signals": ("SignalHandlerOptions",),
    "rclpy.task": ("Future",),
    "rclpy.time": ("Time",),
    "rclpy.utilities": ("get_default_context", "remove_ros_args"),
}  # fmt: skip

if BACKEND == "rclpy":
    supported.refuse_broken()
__all__ = ["BACKEND"]
for _module, _names in _RCLPY.items():
    try:
        _source = importlib.import_module(_module if BACKEND == "rclpy" else f"{__name__}.dds")
        globals().update({_name: getattr(_source, _name) for _name in _names})
    except (ImportError, AttributeError) as _error:
        if BACKEND == "dds":
            raise
        raise supported.lacking(_error) from _error
    __all__.extend(_names)
if BACKEND == "rclpy":
    importlib.import_module(f"{__name__}.rclpy_logger").escape_log_lines()
    globals()["init"] = importlib.import_module(f"{__name__}.fastdds").init  # rclpy's, with a profile for Fast DDS
