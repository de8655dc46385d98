"""Service types with rclpy's interface: a class with `Request` and `Response`.

Definitions are registered under their full service name: rosbags would register the parts as messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rosbags.typesys import get_types_from_msg

from .messages import STORE, message_type


class ServiceType:
    """Base of all service types; it is never instantiated."""

    _ros_type: str
    Request: Any
    Response: Any


def register_service(ros_type: str, definition: str) -> Any:
    """Register 'package/srv/Name' from its .srv text and return its class."""
    request, separator, response = definition.partition("---")
    if not separator:
        raise ValueError(f"{ros_type}: a service definition needs a line of ---")
    for text, suffix in ((request, "_Request"), (response, "_Response")):
        [fields] = get_types_from_msg(text.strip() + "\n", ros_type + suffix).values()
        STORE.register({ros_type + suffix: fields})
    parts = {"Request": message_type(ros_type + "_Request"), "Response": message_type(ros_type + "_Response")}
    return type(ros_type.rsplit("/", 1)[1], (ServiceType,), {"_ros_type": ros_type, **parts})


def answer(field: str, value: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A callback whose response has one field: value(request)."""

    def callback(request: Any, response: Any) -> Any:
        setattr(response, field, value(request))
        return response

    return callback


Empty = register_service("std_srvs/srv/Empty", "---\n")
SetBool = register_service("std_srvs/srv/SetBool", "bool data\n---\nbool success\nstring message\n")
Trigger = register_service("std_srvs/srv/Trigger", "---\nbool success\nstring message\n")

_TRANSITION, _STATE = "lifecycle_msgs/msg/Transition", "lifecycle_msgs/msg/State"
_DESCRIPTION = "lifecycle_msgs/msg/TransitionDescription"
ChangeState = register_service("lifecycle_msgs/srv/ChangeState", f"{_TRANSITION} transition\n---\nbool success\n")
GetState = register_service("lifecycle_msgs/srv/GetState", f"---\n{_STATE} current_state\n")
GetAvailableStates = register_service("lifecycle_msgs/srv/GetAvailableStates", f"---\n{_STATE}[] available_states\n")
GetAvailableTransitions = register_service(
    "lifecycle_msgs/srv/GetAvailableTransitions", f"---\n{_DESCRIPTION}[] available_transitions\n"
)

_RCL = "rcl_interfaces/msg"
DescribeParameters = register_service(
    "rcl_interfaces/srv/DescribeParameters", f"string[] names\n---\n{_RCL}/ParameterDescriptor[] descriptors\n"
)
GetParameters = register_service(
    "rcl_interfaces/srv/GetParameters", f"string[] names\n---\n{_RCL}/ParameterValue[] values\n"
)
GetParameterTypes = register_service("rcl_interfaces/srv/GetParameterTypes", "string[] names\n---\nuint8[] types\n")
ListParameters = register_service(
    "rcl_interfaces/srv/ListParameters",
    f"uint64 DEPTH_RECURSIVE=0\nstring[] prefixes\nuint64 depth\n---\n{_RCL}/ListParametersResult result\n",
)
SetParameters = register_service(
    "rcl_interfaces/srv/SetParameters", f"{_RCL}/Parameter[] parameters\n---\n{_RCL}/SetParametersResult[] results\n"
)
SetParametersAtomically = register_service(
    "rcl_interfaces/srv/SetParametersAtomically",
    f"{_RCL}/Parameter[] parameters\n---\n{_RCL}/SetParametersResult result\n",
)
