"""Quality of service: rclpy's profile and enums, and the DDS policies to which rmw_cyclonedds maps them.

It chooses no profile: the presets are those of ROS.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import lru_cache

from . import library as dds
from .clock import Duration


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


class DurabilityPolicy(IntEnum):
    SYSTEM_DEFAULT = 0
    TRANSIENT_LOCAL = 1
    VOLATILE = 2
    UNKNOWN = 3


class LivelinessPolicy(IntEnum):
    SYSTEM_DEFAULT = 0
    AUTOMATIC = 1
    MANUAL_BY_TOPIC = 3
    UNKNOWN = 4


class QoSPolicyKind(IntEnum):
    """The policy that an incompatible-QoS event names (rmw_qos_policy_kind_t)."""

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


# DDS policy ids (OMG DDS 1.4, 2.2.3) of the policies that must match and that have a name in ROS.
POLICY_OF_DDS = {
    2: QoSPolicyKind.DURABILITY,
    4: QoSPolicyKind.DEADLINE,
    8: QoSPolicyKind.LIVELINESS,
    11: QoSPolicyKind.RELIABILITY,
    13: QoSPolicyKind.HISTORY,
    21: QoSPolicyKind.LIFESPAN,
}


def qos_policy_name_from_kind(kind: int) -> str:
    """'RELIABILITY' for QoSPolicyKind.RELIABILITY."""
    return QoSPolicyKind(kind).name


class InvalidQoSProfileException(ValueError):
    """The profile lacks history and depth, or a value is out of range."""


class QoSProfile:
    """A ROS 2 quality-of-service profile; zero durations mean 'unspecified' (infinite).

    Either `history` or `depth` must be given, and KEEP_LAST needs a depth, as in rclpy.
    """

    def __init__(
        self,
        *,
        depth: int | None = None,
        history: HistoryPolicy | None = None,
        reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE,
        durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
        lifespan: Duration | None = None,
        deadline: Duration | None = None,
        liveliness: LivelinessPolicy = LivelinessPolicy.SYSTEM_DEFAULT,
        liveliness_lease_duration: Duration | None = None,
        avoid_ros_namespace_conventions: bool = False,
    ) -> None:
        if history is None and depth is None:
            raise InvalidQoSProfileException("QoSProfile: history or depth must be given")
        if history == HistoryPolicy.KEEP_LAST and depth is None:
            raise InvalidQoSProfileException("QoSProfile: history KEEP_LAST needs a depth")
        if depth is not None and depth < 0:
            raise InvalidQoSProfileException(f"QoSProfile: depth {depth} is negative")
        self.history = HistoryPolicy.KEEP_LAST if history is None else HistoryPolicy(history)
        self.depth = depth or 0
        self.reliability = ReliabilityPolicy(reliability)
        self.durability = DurabilityPolicy(durability)
        self.lifespan = lifespan or Duration()
        self.deadline = deadline or Duration()
        self.liveliness = LivelinessPolicy(liveliness)
        self.liveliness_lease_duration = liveliness_lease_duration or Duration()
        self.avoid_ros_namespace_conventions = avoid_ros_namespace_conventions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QoSProfile) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # mutable, as rclpy's

    def __repr__(self) -> str:
        return f"QoSProfile({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @staticmethod
    def coerce(value: QoSProfile | int) -> QoSProfile:
        """A depth alone means the default profile with that depth, as in rclpy."""
        if isinstance(value, QoSProfile):
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"qos_profile: expected QoSProfile or int, got {type(value).__name__}")
        return QoSProfile(depth=value)


qos_profile_default = QoSProfile(depth=10)
qos_profile_system_default = QoSProfile(
    depth=0,
    history=HistoryPolicy.SYSTEM_DEFAULT,
    reliability=ReliabilityPolicy.SYSTEM_DEFAULT,
    durability=DurabilityPolicy.SYSTEM_DEFAULT,
)
qos_profile_sensor_data = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
qos_profile_services_default = QoSProfile(depth=10)
qos_profile_parameters = QoSProfile(depth=1000)
qos_profile_parameter_events = QoSProfile(depth=1000)
qos_profile_rosout_default = QoSProfile(
    depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL, lifespan=Duration(seconds=10)
)

_KEEP_LAST, _KEEP_ALL = 0, 1
_BEST_EFFORT, _RELIABLE = 0, 1
_VOLATILE, _TRANSIENT_LOCAL = 0, 1
_AUTOMATIC, _MANUAL_BY_TOPIC = 0, 2
_IGNORE_PARTICIPANT = 1
_UNLIMITED = -1
_XCDR1 = (ct.c_int16 * 1)(0)


def _set_policies(handle: int, profile: QoSProfile) -> None:
    def time_ns(duration: Duration) -> int:
        return duration.nanoseconds or dds.INFINITE_NS

    keep_all = profile.history == HistoryPolicy.KEEP_ALL
    history = (_KEEP_ALL, _UNLIMITED) if keep_all else (_KEEP_LAST, profile.depth or 1)
    dds.qset_history(handle, *history)
    # In ROS a reliable publish may block without a limit, but only with KEEP_ALL does it block at all.
    reliable = profile.reliability != ReliabilityPolicy.BEST_EFFORT
    dds.qset_reliability(handle, _RELIABLE if reliable else _BEST_EFFORT, dds.INFINITE_NS if reliable else 0)
    if profile.durability == DurabilityPolicy.TRANSIENT_LOCAL:
        dds.qset_durability(handle, _TRANSIENT_LOCAL)
        dds.qset_durability_service(handle, 0, *history, _UNLIMITED, _UNLIMITED, _UNLIMITED)
    else:
        dds.qset_durability(handle, _VOLATILE)
    dds.qset_deadline(handle, time_ns(profile.deadline))
    dds.qset_lifespan(handle, time_ns(profile.lifespan))
    manual = profile.liveliness == LivelinessPolicy.MANUAL_BY_TOPIC
    dds.qset_liveliness(handle, _MANUAL_BY_TOPIC if manual else _AUTOMATIC, time_ns(profile.liveliness_lease_duration))
    dds.qset_writer_data_lifecycle(handle, False)
    dds.qset_data_representation(handle, 1, _XCDR1)


@lru_cache(maxsize=4)
def _of_policies(reliability: int, durability: int) -> QoSProfile:
    return QoSProfile(
        depth=0,
        reliability=ReliabilityPolicy.RELIABLE if reliability == _RELIABLE else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE if durability == _VOLATILE else DurabilityPolicy.TRANSIENT_LOCAL,
    )


def profile_of(handle: int) -> QoSProfile:
    """Reliability and durability of a dds_qos_t; a missing one is the weakest. Shared: do not change the result."""
    reliability, durability = ct.c_int(_BEST_EFFORT), ct.c_int(_VOLATILE)
    dds.qget_reliability(handle, ct.byref(reliability), None)
    dds.qget_durability(handle, ct.byref(durability))
    return _of_policies(reliability.value, durability.value)


@contextmanager
def dds_qos(
    profile: QoSProfile | None = None, user_data: bytes = b"", *, ignore_own_participant: bool = False
) -> Iterator[int]:
    """A dds_qos_t for the duration of a with-block: the profile as rmw_cyclonedds maps it, and the user data."""
    handle = dds.create_qos()
    try:
        if profile is not None:
            _set_policies(handle, profile)
        if user_data:
            dds.qset_userdata(handle, user_data, len(user_data))
        if ignore_own_participant:
            dds.qset_ignorelocal(handle, _IGNORE_PARTICIPANT)
        yield handle
    finally:
        dds.delete_qos(handle)
