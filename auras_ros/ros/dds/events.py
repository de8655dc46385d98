"""QoS events as rclpy reports them: missed deadlines, liveliness, incompatible QoS, matches, lost messages.

Read from an endpoint's DDS statuses by the executor, never in a listener: a listener takes the GIL inside
libddsc's threads and can deadlock with a write.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import library as dds
from .endpoint import Reader, Writer
from .logger import RcutilsLogger
from .qos import QoSPolicyKind, policy_kind


@dataclass(frozen=True)
class QoSDeadlineMissedInfo:
    total_count: int
    total_count_change: int


QoSOfferedDeadlineMissedInfo = QoSRequestedDeadlineMissedInfo = QoSDeadlineMissedInfo


@dataclass(frozen=True)
class QoSLivelinessLostInfo:
    total_count: int
    total_count_change: int


@dataclass(frozen=True)
class QoSMessageLostInfo:
    total_count: int
    total_count_change: int


@dataclass(frozen=True)
class QoSLivelinessChangedInfo:
    alive_count: int
    not_alive_count: int
    alive_count_change: int
    not_alive_count_change: int


@dataclass(frozen=True)
class QoSIncompatibleInfo:
    total_count: int
    total_count_change: int
    last_policy_kind: QoSPolicyKind


QoSOfferedIncompatibleQoSInfo = QoSRequestedIncompatibleQoSInfo = QoSIncompatibleInfo


@dataclass(frozen=True)
class QoSMatchedInfo:
    total_count: int
    total_count_change: int
    current_count: int
    current_count_change: int


QoSPublisherMatchedInfo = QoSSubscriptionMatchedInfo = QoSMatchedInfo
Callback = Callable[[Any], None]


@dataclass
class PublisherEventCallbacks:
    """What to call on a publisher's events; without `use_default_callbacks` incompatible QoS is not logged."""

    deadline: Callback | None = None
    liveliness: Callback | None = None
    incompatible_qos: Callback | None = None
    matched: Callback | None = None
    use_default_callbacks: bool = True


@dataclass
class SubscriptionEventCallbacks:
    """What to call on a subscription's events; as for publishers, and `message_lost`."""

    deadline: Callback | None = None
    liveliness: Callback | None = None
    message_lost: Callback | None = None
    incompatible_qos: Callback | None = None
    matched: Callback | None = None
    use_default_callbacks: bool = True


@dataclass(frozen=True)
class _Status:
    """One DDS status: its bit, the call that reads and resets it, its layout, and how it becomes an event."""

    bit: int
    read: Any
    layout: type[ct.Structure]
    convert: Callable[[Any], tuple[bool, Any]]


def _counted(info: type) -> Callable[[Any], tuple[bool, Any]]:
    return lambda s: (s.total_count_change != 0, info(s.total_count, s.total_count_change))


def _incompatible(status: Any) -> tuple[bool, Any]:
    info = QoSIncompatibleInfo(status.total_count, status.total_count_change, policy_kind(status.last_policy_id))
    return status.total_count_change != 0, info


def _liveliness(status: Any) -> tuple[bool, Any]:
    alive, dead, alive_change, dead_change = status.words
    return bool(alive_change or dead_change), QoSLivelinessChangedInfo(alive, dead, alive_change, dead_change)


def _matched(status: Any) -> tuple[bool, Any]:
    total, total_change, current, current_change = status.words
    return bool(total_change or current_change), QoSMatchedInfo(total, total_change, current, current_change)


_COUNT, _PAIR = dds.CountStatus, dds.PairStatus
_PUBLISHER = {
    "deadline": _Status(dds.STATUS_OFFERED_DEADLINE_MISSED, dds.get_offered_deadline_missed, _COUNT,
                        _counted(QoSDeadlineMissedInfo)),
    "liveliness": _Status(dds.STATUS_LIVELINESS_LOST, dds.get_liveliness_lost, _COUNT,
                          _counted(QoSLivelinessLostInfo)),
    "incompatible_qos": _Status(dds.STATUS_OFFERED_INCOMPATIBLE_QOS, dds.get_offered_incompatible_qos, _COUNT,
                                _incompatible),
    "matched": _Status(dds.STATUS_PUBLICATION_MATCHED, dds.get_publication_matched, _PAIR, _matched),
}  # fmt: skip
_SUBSCRIPTION = {
    "deadline": _Status(dds.STATUS_REQUESTED_DEADLINE_MISSED, dds.get_requested_deadline_missed, _COUNT,
                        _counted(QoSDeadlineMissedInfo)),
    "liveliness": _Status(dds.STATUS_LIVELINESS_CHANGED, dds.get_liveliness_changed, _PAIR, _liveliness),
    "message_lost": _Status(dds.STATUS_SAMPLE_LOST, dds.get_sample_lost, _COUNT, _counted(QoSMessageLostInfo)),
    "incompatible_qos": _Status(dds.STATUS_REQUESTED_INCOMPATIBLE_QOS, dds.get_requested_incompatible_qos, _COUNT,
                                _incompatible),
    "matched": _Status(dds.STATUS_SUBSCRIPTION_MATCHED, dds.get_subscription_matched, _PAIR, _matched),
}  # fmt: skip


class EventHandler:
    """The events of one endpoint, for the executor: `entity` is watched, `execute` reports what changed."""

    def __init__(
        self,
        endpoint: Writer | Reader,
        callbacks: PublisherEventCallbacks | SubscriptionEventCallbacks,
        logger: RcutilsLogger,
    ) -> None:
        self._endpoint = endpoint
        self.entity = endpoint.ref
        table = _PUBLISHER if isinstance(endpoint, Writer) else _SUBSCRIPTION
        self._wanted: list[tuple[_Status, Callback]] = []
        for name, status in table.items():
            callback = getattr(callbacks, name)
            if callback is None and name == "incompatible_qos" and callbacks.use_default_callbacks:
                callback = _log_incompatible(endpoint, logger)
            if callback is not None:
                self._wanted.append((status, callback))
        mask = sum(status.bit for status, _ in self._wanted)
        dds.check(dds.set_status_mask(self.entity, mask), f"events of {endpoint.topic}")

    @property
    def wanted(self) -> bool:
        """False where there is nothing to watch for."""
        return bool(self._wanted)

    @property
    def closed(self) -> bool:
        return self._endpoint.closed

    def execute(self) -> None:
        """Call back for every status that changed; reading a status resets it."""
        for status, callback in self._wanted:
            with self._endpoint.lock:
                if self._endpoint.closed:
                    return
                value = status.layout()
                dds.check(status.read(self.entity, ct.byref(value)), f"events of {self._endpoint.topic}")
            changed, info = status.convert(value)
            if changed:
                callback(info)


def _log_incompatible(endpoint: Writer | Reader, logger: RcutilsLogger) -> Callback:
    who, other = ("publisher", "subscription") if isinstance(endpoint, Writer) else ("subscription", "publisher")
    topic = endpoint.topic.removeprefix("rt")

    def log(info: QoSIncompatibleInfo) -> None:
        logger.warning(
            f"{who} on {topic}: a {other} with incompatible QoS was found and gets no messages through it; "
            f"the policy is {info.last_policy_kind.name}"
        )

    return log
