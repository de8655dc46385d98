"""rclpy.qos."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from rclpy_recording import refuse, strict

from .duration import Duration


class QoSPolicyKind(IntEnum):
    INVALID = 1
    DURABILITY = 2
    DEADLINE = 4
    LIVELINESS = 8
    RELIABILITY = 16
    HISTORY = 32
    LIFESPAN = 64
    DEPTH = 128
    LIVELINESS_LEASE_DURATION = 256
    AVOID_ROS_NAMESPACE_CONVENTIONS = 512


def qos_policy_name_from_kind(policy_kind: int) -> str:
    return QoSPolicyKind(policy_kind).name


class HistoryPolicy(IntEnum):
    SYSTEM_DEFAULT = 0
    KEEP_LAST = 1
    KEEP_ALL = 2
    UNKNOWN = 3


class ReliabilityPolicy(IntEnum):
    SYSTEM_DEFAULT = 0
    RELIABLE = 1
    BEST_EFFORT = 2
    UNKNOWN = 3
    BEST_AVAILABLE = 4


class DurabilityPolicy(IntEnum):
    SYSTEM_DEFAULT = 0
    TRANSIENT_LOCAL = 1
    VOLATILE = 2
    UNKNOWN = 3
    BEST_AVAILABLE = 4


class LivelinessPolicy(IntEnum):
    SYSTEM_DEFAULT = 0
    AUTOMATIC = 1
    MANUAL_BY_TOPIC = 3
    UNKNOWN = 4
    BEST_AVAILABLE = 5


class InvalidQoSProfileException(Exception):  # noqa: N818
    def __init__(self, *args: Any) -> None:
        super().__init__("Invalid QoSProfile", *args)


_POLICIES: dict[str, tuple[type, Any]] = {
    "history": (HistoryPolicy, HistoryPolicy.KEEP_LAST),
    "depth": (int, 10),
    "reliability": (ReliabilityPolicy, ReliabilityPolicy.RELIABLE),
    "durability": (DurabilityPolicy, DurabilityPolicy.VOLATILE),
    "lifespan": (Duration, Duration()),
    "deadline": (Duration, Duration()),
    "liveliness": (LivelinessPolicy, LivelinessPolicy.SYSTEM_DEFAULT),
    "liveliness_lease_duration": (Duration, Duration()),
    "avoid_ros_namespace_conventions": (bool, False),
}


@strict
class QoSProfile:
    """Any keywords, as rclpy has it; it looks at their names and types itself."""

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            if name not in _POLICIES:
                refuse(f"rclpy.qos.QoSProfile: no policy {name!r}")
            kind = _POLICIES[name][0]
            if not isinstance(value, (kind, int) if issubclass(kind, IntEnum) else kind):
                refuse(f"rclpy.qos.QoSProfile: {name}: expected {kind.__name__}, got {value!r}")
        if "depth" not in kwargs and kwargs.get("history", HistoryPolicy.KEEP_LAST) == HistoryPolicy.KEEP_LAST:
            raise InvalidQoSProfileException("History and/or depth settings are required.")
        for name, (kind, default) in _POLICIES.items():
            value = kwargs.get(name, default)
            setattr(self, name, kind(value) if issubclass(kind, IntEnum) else value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QoSProfile) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


qos_profile_default = QoSProfile(depth=10)
qos_profile_system_default = QoSProfile(
    history=HistoryPolicy.SYSTEM_DEFAULT,
    depth=0,
    reliability=ReliabilityPolicy.SYSTEM_DEFAULT,
    durability=DurabilityPolicy.SYSTEM_DEFAULT,
)
qos_profile_sensor_data = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
qos_profile_services_default = QoSProfile(depth=10)
qos_profile_parameters = QoSProfile(depth=1000)
qos_profile_parameter_events = QoSProfile(depth=1000)
qos_profile_best_available = QoSProfile(
    depth=10, reliability=ReliabilityPolicy.BEST_AVAILABLE, durability=DurabilityPolicy.BEST_AVAILABLE
)
