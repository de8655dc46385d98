"""The messages that node code uses, by their plain names: `from auras_ros.ros.msg import Image, JointState`.

All are rclpy's own if the backend is rclpy, otherwise all are ours; each is created at its first use.
If two packages share a name, ours has the suffix Msg: ClockMsg, TimeMsg, DurationMsg, ParameterMsg.
"""

from __future__ import annotations

import importlib
from typing import Any

from .backend import BACKEND

_PACKAGES = {
    "builtin_interfaces": (),
    "diagnostic_msgs": ("DiagnosticArray", "DiagnosticStatus", "KeyValue"),
    "geometry_msgs": ("Point", "Pose", "PoseStamped", "Quaternion", "Transform", "TransformStamped", "Twist",
                      "TwistStamped", "Vector3", "Wrench", "WrenchStamped"),
    "lifecycle_msgs": ("State", "Transition", "TransitionDescription", "TransitionEvent"),
    "rcl_interfaces": ("FloatingPointRange", "IntegerRange", "ListParametersResult", "Log", "ParameterDescriptor",
                       "ParameterEvent", "ParameterType", "ParameterValue", "SetParametersResult"),
    "sensor_msgs": ("CameraInfo", "CompressedImage", "Image", "Imu", "JointState"),
    "std_msgs": ("Bool", "Empty", "Float32", "Float32MultiArray", "Float64", "Float64MultiArray", "Header", "Int32",
                 "Int64", "MultiArrayDimension", "MultiArrayLayout", "String", "UInt8MultiArray", "UInt32", "UInt64"),
    "trajectory_msgs": ("JointTrajectory", "JointTrajectoryPoint"),
    "vision_msgs": ("BoundingBox2D", "Detection2D", "Detection2DArray", "ObjectHypothesis", "ObjectHypothesisWithPose",
                    "Point2D", "Pose2D"),
}  # fmt: skip
_TYPES = {name: f"{package}/msg/{name}" for package, names in _PACKAGES.items() for name in names} | {
    "ClockMsg": "rosgraph_msgs/msg/Clock",
    "DurationMsg": "builtin_interfaces/msg/Duration",
    "ParameterMsg": "rcl_interfaces/msg/Parameter",
    "TimeMsg": "builtin_interfaces/msg/Time",
}


def message_type(ros_type: str) -> Any:
    """The class of any message by its full name, 'package/msg/Name'.

    Raises ImportError naming the package (rclpy) or KeyError naming the type (ours) if there is none.
    """
    package, _, name = ros_type.split("/")
    if BACKEND == "rclpy":
        try:
            return getattr(importlib.import_module(f"{package}.msg"), name)
        except ImportError as error:
            missing = f"ros-$ROS_DISTRO-{package.replace('_', '-')}"
            raise ImportError(f"no message package {package}: install {missing} ({error})") from error
    from .dds.messages import message_type as ours

    return ours(ros_type)


def full_type_name(kind: Any) -> str:
    """The full name of a message class, as the ROS graph has it: sensor_msgs/msg/Image."""
    if BACKEND == "rclpy":
        package = kind.__module__.partition(".")[0]
        return f"{package}/msg/{kind.__name__}"
    return str(kind._ros_type)


def __getattr__(name: str) -> Any:
    if name not in _TYPES:
        raise AttributeError(f"module {__name__!r} has no message {name!r}; use message_type('package/msg/{name}')")
    globals()[name] = made = message_type(_TYPES[name])
    return made


def __dir__() -> list[str]:
    return sorted([*_TYPES, "message_type"])
