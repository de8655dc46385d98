"""QoS events as rclpy reports them: missed deadlines, liveliness, incompatible QoS, matches, lost messages.

The executor reads them from an endpoint's DDS statuses; no listener is used, because it would take the GIL inside
libddsc's threads and could deadlock with a write.
"""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import library as dds
from .endpoint import Reader, Writer
from .logger import RcutilsLogger
from .qos import POLICY_OF_DDS, QoSPolicyKind


class _Info(ct.Structure):
    """A DDS status in libddsc's layout, which is also the argument of a callback."""

    @property
    def changed(self) -> bool:
        """Whether anything has happened since the last read."""
        return any(getattr(self, field[0]) for field in self._fields_ if field[0].endswith("_change"))


class QoSCountInfo(_Info):
    """Status of missed deadlines, lost liveliness or lost messages."""

    _fields_ = [
        ("total_count", ct.c_uint32), ("total_count_change", ct.c_int32),
        ("last_policy_id", ct.c_uint32), ("handle", ct.c_uint64),
    ]  # fmt: skip


class QoSIncompatibleInfo(QoSCountInfo):
    @property
    def last_policy_kind(self) -> QoSPolicyKind:
        """INVALID if ROS has no name for the DDS policy."""
        return POLICY_OF_DDS.get(self.last_policy_id, QoSPolicyKind.INVALID)


class QoSLivelinessChangedInfo(_Info):
    _fields_ = [
        ("alive_count", ct.c_uint32), ("not_alive_count", ct.c_uint32), ("alive_count_change", ct.c_int32),
        ("not_alive_count_change", ct.c_int32), ("handle", ct.c_uint64),
    ]  # fmt: skip


class QoSMatchedInfo(_Info):
    _fields_ = [
        ("total_count", ct.c_uint32), ("total_count_change", ct.c_int32), ("current_count", ct.c_uint32),
        ("current_count_change", ct.c_int32), ("handle", ct.c_uint64),
    ]  # fmt: skip


Callback = Callable[[Any], None]


@dataclass(kw_only=True)
class _EventCallbacks:
    """The callbacks for events; without `use_default_callbacks` incompatible QoS is not logged."""

    deadline: Callback | None = None
    liveliness: Callback | None = None
    incompatible_qos: Callback | None = None
    matched: Callback | None = None
    use_default_callbacks: bool = True


class PublisherEventCallbacks(_EventCallbacks):
    """Event callbacks of a publisher."""


@dataclass(kw_only=True)
class SubscriptionEventCallbacks(_EventCallbacks):
    """Event callbacks of a subscription."""

    message_lost: Callback | None = None


class _Event:
    """One DDS status: its bit in a mask, the call that reads and resets it, and its type."""

    def __init__(self, number: int, status: str, info: type[_Info]) -> None:
        self.bit, self.read, self.info = 1 << number, dds.status_reader(status), info


_PUBLISHER = {
    "deadline": _Event(1, "offered_deadline_missed", QoSCountInfo),
    "liveliness": _Event(9, "liveliness_lost", QoSCountInfo),
    "incompatible_qos": _Event(3, "offered_incompatible_qos", QoSIncompatibleInfo),
    "matched": _Event(11, "publication_matched", QoSMatchedInfo),
}
_SUBSCRIPTION = {
    "deadline": _Event(2, "requested_deadline_missed", QoSCountInfo),
    "liveliness": _Event(10, "liveliness_changed", QoSLivelinessChangedInfo),
    "message_lost": _Event(5, "sample_lost", QoSCountInfo),
    "incompatible_qos": _Event(4, "requested_incompatible_qos", QoSIncompatibleInfo),
    "matched": _Event(12, "subscription_matched", QoSMatchedInfo),
}


class EventHandler:
    """The events of one endpoint, for the executor: it watches `entity`, and `execute` reports what changed."""

    def __init__(
        self,
        endpoint: Writer | Reader,
        callbacks: PublisherEventCallbacks | SubscriptionEventCallbacks,
        logger: RcutilsLogger,
    ) -> None:
        self._endpoint = endpoint
        self.entity = endpoint.ref
        table = _PUBLISHER if isinstance(endpoint, Writer) else _SUBSCRIPTION
        self._wanted: list[tuple[_Event, Callback]] = []
        for name, event in table.items():
            callback = getattr(callbacks, name)
            if callback is None and name == "incompatible_qos" and callbacks.use_default_callbacks:
                callback = _log_incompatible(endpoint, logger)
            if callback is not None:
                self._wanted.append((event, callback))
        mask = sum(event.bit for event, _ in self._wanted)
        dds.check(dds.set_status_mask(self.entity, mask), f"events of {endpoint.topic}")

    @property
    def wanted(self) -> bool:
        """False if there is nothing to watch."""
        return bool(self._wanted)

    @property
    def closed(self) -> bool:
        return self._endpoint.closed

    def execute(self) -> None:
        """Call the callback of every status that changed; reading a status resets it."""
        for event, callback in self._wanted:
            info = event.info()
            with self._endpoint.lock:
                if self._endpoint.closed:
                    return
                dds.check(event.read(self.entity, ct.byref(info)), f"events of {self._endpoint.topic}")
            if info.changed:
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
