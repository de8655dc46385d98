"""What a node creates. A real rclpy has one module for each; `rclpy.publisher` and its like stand for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rclpy_recording import changed, refuse, strict

from .clock import Clock
from .context import Context
from .duration import Duration
from .exceptions import InvalidHandle, RCLError
from .qos import QoSProfile
from .task import Future


@dataclass
class Sent:
    """A message that was published: where, what, and after how many others."""

    topic: str
    message: Any
    number: int


sent: list[Sent] = []


class _Entity:
    _destroyed = False

    def destroy(self) -> None:
        self._destroyed = True

    def _alive(self) -> None:
        if self._destroyed:
            raise InvalidHandle(f"cannot use {type(self).__name__}: it was destroyed")


@strict
class Publisher(_Entity):
    KNOWN_AS = "rclpy.publisher.Publisher"

    def __init__(
        self, publisher_impl: Any, msg_type: Any, topic: str, qos_profile: QoSProfile, event_callbacks: Any,
        callback_group: Any,
    ) -> None:  # fmt: skip
        self._node, self.msg_type, self.topic, self.qos_profile = publisher_impl, msg_type, topic, qos_profile
        self.topic_name = publisher_impl.resolve_topic_name(topic)
        self.event_callbacks = event_callbacks

    def publish(self, msg: Any) -> None:
        self._alive()
        if not isinstance(msg, (self.msg_type, bytes)):
            refuse(f"rclpy.publisher.Publisher.publish: {self.topic_name}: expected {self.msg_type}, got {type(msg)}")
        if not self._node.context.ok():
            raise RCLError("Failed to publish: publisher's context is invalid")
        with changed:
            sent.append(Sent(self.topic_name, msg, len(sent)))
            changed.notify_all()

    def get_subscription_count(self) -> int:
        self._alive()
        return int(self._node.count_subscribers(self.topic_name))

    def assert_liveliness(self) -> None:
        self._alive()

    def wait_for_all_acked(self, timeout: Duration = Duration(seconds=-1)) -> bool:  # noqa: B008
        self._alive()
        return True


@strict
class Subscription(_Entity):
    KNOWN_AS = "rclpy.subscription.Subscription"

    def __init__(
        self, subscription_impl: Any, msg_type: Any, topic: str, callback: Callable[..., Any], callback_group: Any,
        qos_profile: QoSProfile, raw: bool, event_callbacks: Any,
    ) -> None:  # fmt: skip
        self._node, self.msg_type, self.topic, self.callback = subscription_impl, msg_type, topic, callback
        self.qos_profile, self.raw, self.event_callbacks = qos_profile, raw, event_callbacks
        self.topic_name = subscription_impl.resolve_topic_name(topic)


@strict
class Service(_Entity):
    KNOWN_AS = "rclpy.service.Service"

    def __init__(
        self, service_impl: Any, srv_type: Any, srv_name: str, callback: Callable[..., Any], callback_group: Any,
        qos_profile: QoSProfile,
    ) -> None:  # fmt: skip
        self.srv_type, self.srv_name, self.callback, self.qos_profile = srv_type, srv_name, callback, qos_profile
        self.service_name = service_impl.resolve_service_name(srv_name)


@strict
class Client(_Entity):
    KNOWN_AS = "rclpy.client.Client"

    def __init__(
        self, context: Context, client_impl: Any, srv_type: Any, srv_name: str, qos_profile: QoSProfile,
        callback_group: Any,
    ) -> None:  # fmt: skip
        self.context, self.srv_type, self.srv_name, self.qos_profile = context, srv_type, srv_name, qos_profile
        self.service_name = client_impl.resolve_service_name(srv_name)

    def call_async(self, request: Any) -> Future:
        if not isinstance(request, self.srv_type.Request):
            refuse(f"rclpy.client.Client.call_async: {self.service_name}: got {type(request)}")
        return Future()

    def service_is_ready(self) -> bool:
        return False

    def wait_for_service(self, timeout_sec: float | None = None) -> bool:
        return False

    def remove_pending_request(self, future: Future) -> None:
        pass


@strict
class Timer(_Entity):
    KNOWN_AS = "rclpy.timer.Timer"

    def __init__(
        self, callback: Callable[[], Any], callback_group: Any, timer_period_ns: int, clock: Clock, *,
        context: Context | None = None, autostart: bool = True,
    ) -> None:  # fmt: skip
        self.callback, self.timer_period_ns, self.clock = callback, timer_period_ns, clock
        self._next_ns = time.monotonic_ns() + timer_period_ns if autostart else None

    def cancel(self) -> None:
        self._next_ns = None

    def reset(self) -> None:
        self._next_ns = time.monotonic_ns() + self.timer_period_ns

    def is_canceled(self) -> bool:
        return self._next_ns is None

    def is_ready(self) -> bool:
        return self._next_ns is not None and time.monotonic_ns() >= self._next_ns

    def time_until_next_call(self) -> int | None:
        return None if self._next_ns is None else self._next_ns - time.monotonic_ns()

    def time_since_last_call(self) -> int:
        return 0
