"""The test's side of the double: hand messages, requests and events to nodes, wait for what they publish, report.

Everything is called back in the executor's thread, as rclpy does it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import rclpy_recording
from rclpy.entities import Client, Publisher, Sent, Service, Subscription, Timer, sent
from rclpy.executors import work
from rclpy.node import Node, made
from rclpy.node_graph import nodes
from rclpy.serialization import serialize_message
from rclpy.task import Future
from rclpy_recording import changed, refuse

__all__ = ["call", "deliver", "event", "heard", "node", "report", "sent", "tell", "until"]

PATIENCE_S = 60.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of the condition. AssertionError naming `what` where there is none."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with changed:
            found = condition()
            if found:
                return found
            changed.wait(0.05)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


def _entities(kind: type) -> list[tuple[Node, Any]]:
    return [(node, each) for node in list(nodes) for each in node._made(kind)]


def node(name: str) -> Node:
    return until(lambda: [each for each in nodes if each.get_name() == name], f"a node {name}")[0]  # type: ignore[no-any-return]


def _queue(owner: Node, job: Callable[[], None]) -> None:
    with changed:
        work.append((owner, job))
        changed.notify_all()


def deliver(topic: str, message: Any) -> int:
    """Give a message to every subscription of the topic; how many there were."""
    found = [(owner, each) for owner, each in _entities(Subscription) if each.topic_name == topic]
    for owner, each in found:
        if not isinstance(message, each.msg_type):
            refuse(f"{topic}: a {type(message).__name__} for a subscription of {each.msg_type.__name__}")
        _queue(owner, partial(each.callback, *_given(each, message)))
    return len(found)


def _given(subscription: Subscription, message: Any) -> list[Any]:
    """What the callback is called with: rclpy 7.1 does not say whose a message is."""
    given = [serialize_message(message) if subscription.raw else message]
    try:
        inspect.signature(subscription.callback).bind(*given)
    except TypeError:
        given.append({"source_timestamp": time.time_ns(), "received_timestamp": time.time_ns()})
    return given


def tell(topic: str, message: Any) -> None:
    """Give a message that comes once, as a latched one is given: as soon as somebody subscribes to the topic."""
    until(lambda: deliver(topic, message), f"a subscription of {topic}")


def call(service: str, **fields: Any) -> Any:
    """The response of a service, called with the request's fields."""

    def found() -> Any:
        return [pair for pair in _entities(Service) if pair[1].service_name == service]

    owner, each = until(found, f"service {service}")[0]

    def answer() -> Any:
        response = each.callback(each.srv_type.Request(**fields), each.srv_type.Response())
        if not isinstance(response, each.srv_type.Response):
            refuse(f"{service}: the callback returned {response!r}")
        return response

    return _answered(owner, answer, f"an answer of {service}")


def set_parameter(name: str, parameter: Any) -> Any:
    """The result of setting it on the node of that name, which serves that, like any request, while it spins."""
    owner = node(name)
    return _answered(owner, lambda: owner.set_parameters([parameter])[0], f"an answer about {parameter.name}")


def _answered(owner: Node, job: Callable[[], Any], what: str) -> Any:
    future = Future()
    _queue(owner, lambda: future.set_result(job()))
    until(future.done, what)
    return future.result()


def event(topic: str, kind: str, info: Any) -> int:
    """Raise a QoS event on every endpoint of the topic that has a callback for it; how many had one."""
    found = [
        (owner, getattr(each.event_callbacks, kind, None))
        for owner, each in _entities(Publisher) + _entities(Subscription)
        if each.topic_name == topic
    ]
    wanted = [(owner, callback) for owner, callback in found if callback is not None]
    for owner, callback in wanted:
        _queue(owner, partial(callback, info))
    return len(wanted)


def heard(topic: str, condition: Callable[[Any], Any], what: str, after: int = 0) -> Sent:
    """The first message on a topic, after that many of all, for which the condition holds."""
    return until(  # type: ignore[no-any-return]
        lambda: [each for each in sent[after:] if each.topic == topic and condition(each.message)], f"{topic}: {what}"
    )[0]


def report() -> dict[str, Any]:
    """What was made and published, and what rclpy would have refused; for JSON."""
    kinds: dict[str, type] = {"publishers": Publisher, "subscriptions": Subscription, "services": Service,
                              "clients": Client, "timers": Timer}  # fmt: skip

    def line(each: Any) -> Any:
        if isinstance(each, Timer):
            return each.timer_period_ns
        if isinstance(each, (Service, Client)):
            return [each.service_name, f"{each.srv_type.__name__}"]
        qos = each.qos_profile
        return [each.topic_name, each.msg_type.__name__, qos.reliability.name, qos.durability.name, qos.depth]

    topics: dict[str, int] = {}
    for each in sent:
        topics[each.topic] = topics.get(each.topic, 0) + 1
    return {
        "refused": rclpy_recording.refused,
        "calls": sorted({each.name for each in rclpy_recording.calls}),
        "sent": topics,
        **{name: [line(each) for _, each in made if isinstance(each, kind)] for name, kind in kinds.items()},
    }
