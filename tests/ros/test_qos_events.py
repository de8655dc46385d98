"""QoS events between two processes: named by policy on both sides within a second (reliability row 'QoS mismatch')."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds import events as dds_events
from auras_ros.ros.msg import String

SpinUntil = Callable[[Callable[[], Any]], None]
WITHIN_S = 1.0
BUSY_S = 5.0  # room for a machine that has other work; discovery forgets a process after 10
TRIES = 3
MS = 1_000_000
BEST_EFFORT = {"reliability": "BEST_EFFORT"}
MANUAL = {"liveliness": "MANUAL_BY_TOPIC"}


def profile(**fields: Any) -> ros.QoSProfile:
    enums: dict[str, Any] = {
        "reliability": ros.ReliabilityPolicy, "durability": ros.DurabilityPolicy, "liveliness": ros.LivelinessPolicy
    }  # fmt: skip
    made = {
        name: enums[name][value] if name in enums else ros.Duration(nanoseconds=value * MS)
        for name, value in fields.items()
    }
    return ros.QoSProfile(depth=1, **made)


# policy, what the publisher offers, what the subscription asks for
MISMATCHES = [
    ("RELIABILITY", BEST_EFFORT, {"reliability": "RELIABLE"}),
    ("DURABILITY", {}, {"durability": "TRANSIENT_LOCAL"}),
    ("DEADLINE", {"deadline": 200}, {"deadline": 100}),
    ("LIVELINESS", {}, MANUAL),
    ("LIVELINESS", {"liveliness_lease_duration": 400}, {"liveliness_lease_duration": 300}),
]


@pytest.fixture
def told(node: ros.Node) -> list[dict[str, Any]]:
    """The events of the child process, in their order."""
    heard: list[dict[str, Any]] = []
    # Discovery is not symmetric: the child may not know this subscription yet when it tells its first event.
    latched = ros.QoSProfile(depth=100, durability=ros.DurabilityPolicy.TRANSIENT_LOCAL)
    node.create_subscription(String, "events", lambda message: heard.append(json.loads(message.data)), latched)
    return heard


def meet(node: ros.Node, spin_until: SpinUntil, child_offers: bool) -> None:
    """Wait until the child's endpoint and its event topic are known, so that only the event itself is timed."""
    count = node.count_publishers if child_offers else node.count_subscribers
    [events] = [s for s in node.subscriptions if s.topic_name == "/test/events"]
    spin_until(lambda: count("thing") == 1 and events.get_publisher_count() == 1)


@pytest.mark.parametrize(("policy", "offered", "requested"), MISMATCHES)
@pytest.mark.parametrize("child_offers", [True, False])
def test_a_mismatch_is_named_on_both_sides_within_a_second(
    node: ros.Node, spawn: Any, spin_until: SpinUntil, told: list[dict[str, Any]],
    policy: str, offered: dict[str, Any], requested: dict[str, Any], child_offers: bool,
) -> None:  # fmt: skip
    spawn("watcher", "offer" if child_offers else "request", json.dumps(offered if child_offers else requested))
    meet(node, spin_until, child_offers)
    here: list[str] = []

    def note(info: Any) -> None:
        here.append(ros.qos_policy_name_from_kind(info.last_policy_kind))

    began = time.monotonic()
    if child_offers:
        requests = ros.SubscriptionEventCallbacks(incompatible_qos=note)
        node.create_subscription(String, "thing", lambda _: None, profile(**requested), event_callbacks=requests)
    else:
        offers = ros.PublisherEventCallbacks(incompatible_qos=note)
        node.create_publisher(String, "thing", profile(**offered), event_callbacks=offers)
    spin_until(lambda: here and told)
    assert time.monotonic() - began < WITHIN_S
    assert here == [policy]
    assert told == [{"kind": "incompatible_qos", "policy": policy}]


def test_a_match_and_its_end_are_told(
    node: ros.Node, spawn: Any, spin_until: SpinUntil, told: list[dict[str, Any]]
) -> None:
    spawn("watcher", "offer", "{}")
    meet(node, spin_until, True)
    subscription = node.create_subscription(String, "thing", lambda _: None, 1)
    spin_until(lambda: len(told) == 1)
    node.destroy_subscription(subscription)
    spin_until(lambda: len(told) == 2)
    assert [event["kind"] for event in told] == ["matched", "matched"]


def test_a_publisher_that_falls_silent_is_told_within_a_second(
    node: ros.Node, spawn: Any, spin_until: SpinUntil, told: list[dict[str, Any]]
) -> None:
    """Deadline and liveliness, on the receiving side, from a publisher that lives on but says nothing. The lease ends
    long after the deadline: of a writer that is not alive nothing is late, and a process that was stalled looks at both
    at once."""
    asked = {"deadline": 200, "liveliness": "MANUAL_BY_TOPIC", "liveliness_lease_duration": 800}
    spawn("watcher", "request", json.dumps(asked))
    meet(node, spin_until, False)
    publisher = node.create_publisher(String, "thing", profile(**asked))
    spin_until(lambda: {"kind": "matched", "policy": ""} in told)

    def late() -> bool:
        return any(event["kind"] == "deadline" for event in told)

    def gone(since: int) -> bool:
        return [event["alive"] for event in told[since:] if event["kind"] == "liveliness"][-1:] == [0]

    for _ in range(TRIES):  # a child that stood still meanwhile sees the lease's end alone
        count, silent_since = len(told), time.monotonic()
        publisher.publish(String())
        spin_until(lambda count=count: late() or gone(count))
        if late():
            break
    spin_until(lambda: late() and gone(count))
    assert time.monotonic() - silent_since < 0.8 + BUSY_S


def test_a_killed_publisher_ends_the_match(
    node: ros.Node, spawn: Any, spin_until: SpinUntil, told: list[dict[str, Any]]
) -> None:
    """SIGKILL, which says no goodbye: liveliness with its lease notices, long before discovery does."""
    child = spawn("watcher", "offer", json.dumps({"liveliness_lease_duration": 1000}))
    meet(node, spin_until, True)
    alive: list[int] = []
    callbacks = ros.SubscriptionEventCallbacks(liveliness=lambda info: alive.append(info.alive_count))
    asked = profile(liveliness_lease_duration=1000)
    node.create_subscription(String, "thing", lambda _: None, asked, event_callbacks=callbacks)
    spin_until(lambda: alive and alive[-1] == 1)
    killed_at = time.monotonic()
    child.send_signal(signal.SIGKILL)
    spin_until(lambda: alive[-1] == 0)
    assert time.monotonic() - killed_at < 1.0 + BUSY_S


def test_an_event_callback_may_destroy_its_endpoint(node: ros.Node, spin_until: SpinUntil) -> None:
    """The executor holds the handler while it runs: it must stop looking at the statuses that follow."""
    gone: list[bool] = []

    def leave(_: Any) -> None:
        gone.append(node.destroy_subscription(subscription))

    callbacks = ros.SubscriptionEventCallbacks(liveliness=leave, matched=leave)
    subscription = node.create_subscription(String, "q", lambda _: None, 1, event_callbacks=callbacks)
    node.create_publisher(String, "q", 1)
    spin_until(lambda: gone)
    done: list[Any] = []
    node.create_timer(0.01, lambda: done.append(1))
    spin_until(lambda: done)
    assert gone == [True]


def test_a_lost_message_is_counted() -> None:
    """Cyclone DDS reports hardly any loss (never what the network dropped): the conversion is all there is to test."""
    lost = dds_events._SUBSCRIPTION["message_lost"].info
    info = lost(total_count=7, total_count_change=2)
    assert info.changed
    assert (info.total_count, info.total_count_change) == (7, 2)
    assert not lost(total_count=7).changed
