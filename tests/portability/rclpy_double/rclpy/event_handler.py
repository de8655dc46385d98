"""rclpy.event_handler. What the callbacks get is a class of the C part: counters, and for incompatible QoS an
enumeration of its own whose members carry the C names; `qos_policy_name_from_kind` makes ROS's names of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rclpy_recording import strict


class RmwQosPolicyKind(IntEnum):
    RMW_QOS_POLICY_INVALID = 1
    RMW_QOS_POLICY_DURABILITY = 2
    RMW_QOS_POLICY_DEADLINE = 4
    RMW_QOS_POLICY_LIVELINESS = 8
    RMW_QOS_POLICY_RELIABILITY = 16
    RMW_QOS_POLICY_HISTORY = 32
    RMW_QOS_POLICY_LIFESPAN = 64


@dataclass(frozen=True)
class Counted:
    """Deadline missed, liveliness lost, message lost."""

    total_count: int
    total_count_change: int


@dataclass(frozen=True)
class LivelinessChanged:
    alive_count: int
    not_alive_count: int
    alive_count_change: int
    not_alive_count_change: int


@dataclass(frozen=True)
class Incompatible:
    total_count: int
    total_count_change: int
    last_policy_kind: RmwQosPolicyKind


@dataclass(frozen=True)
class Matched:
    total_count: int
    total_count_change: int
    current_count: int
    current_count_change: int


@strict
class SubscriptionEventCallbacks:
    def __init__(
        self,
        *,
        deadline: Callable[[Any], None] | None = None,
        incompatible_qos: Callable[[Any], None] | None = None,
        liveliness: Callable[[Any], None] | None = None,
        message_lost: Callable[[Any], None] | None = None,
        incompatible_type: Callable[[Any], None] | None = None,
        matched: Callable[[Any], None] | None = None,
        use_default_callbacks: bool = True,
    ) -> None:
        self.deadline, self.incompatible_qos, self.liveliness = deadline, incompatible_qos, liveliness
        self.message_lost, self.incompatible_type, self.matched = message_lost, incompatible_type, matched
        self.use_default_callbacks = use_default_callbacks


@strict
class PublisherEventCallbacks:
    def __init__(
        self,
        *,
        deadline: Callable[[Any], None] | None = None,
        liveliness: Callable[[Any], None] | None = None,
        incompatible_qos: Callable[[Any], None] | None = None,
        incompatible_type: Callable[[Any], None] | None = None,
        matched: Callable[[Any], None] | None = None,
        use_default_callbacks: bool = True,
    ) -> None:
        self.deadline, self.liveliness, self.incompatible_qos = deadline, liveliness, incompatible_qos
        self.incompatible_type, self.matched = incompatible_type, matched
        self.use_default_callbacks = use_default_callbacks
