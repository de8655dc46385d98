"""Nodes of one participant and of others, and the events of their endpoints."""

from __future__ import annotations

import ctypes as ct
import time
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds import graph as graph_module
from auras_ros.ros.msg import String
from auras_ros.soak.faults.presses import Announcer

SpinUntil = Callable[[Callable[[], Any]], None]


def test_several_nodes_are_one_participant(context: ros.Context) -> None:
    a = ros.Node("a", context=context, namespace="/one")
    b = ros.Node("b", context=context, namespace="/two")
    a.create_publisher(String, "/shared", 1)
    b.create_publisher(String, "/shared", 1)
    b.create_subscription(String, "/shared", lambda _: None, 1)
    assert a.context.participant is b.context.participant
    assert {("a", "/one"), ("b", "/two")} <= set(a.get_node_names_and_namespaces())
    owners = {
        (info.node_namespace, info.node_name, info.topic_type) for info in a.get_publishers_info_by_topic("/shared")
    }
    assert owners == {("/one", "a", "std_msgs/msg/String"), ("/two", "b", "std_msgs/msg/String")}
    assert (a.count_publishers("/shared"), a.count_subscribers("/shared")) == (2, 1)
    assert ("/shared", ["std_msgs/msg/String"]) in a.get_topic_names_and_types()
    b.destroy_node()
    assert ("b", "/two") not in a.get_node_names_and_namespaces()
    deadline = time.monotonic() + 20
    while a.count_publishers("/shared") != 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # libddsc withdraws an endpoint in a thread of its own
    assert a.count_publishers("/shared") == 1


def test_what_an_endpoint_offers_is_told(node: ros.Node) -> None:
    """As rclpy's list does: a subscriber can then tell whom it will not hear."""
    strong = ros.QoSProfile(depth=1, durability=ros.DurabilityPolicy.TRANSIENT_LOCAL)
    weak = ros.QoSProfile(depth=1, reliability=ros.ReliabilityPolicy.BEST_EFFORT)
    for topic, given in (("/strong", strong), ("/weak", weak)):
        node.create_publisher(String, topic, given)
        (info,) = node.get_publishers_info_by_topic(topic)
        assert info.qos_profile.durability == given.durability
        assert info.qos_profile.reliability == given.reliability


def test_one_executor_alone_reads_what_others_announce(context: ros.Context) -> None:
    """The one that had a node first, whichever spins first: the thread of an emergency stop must not read strangers'
    announcements, which may be large, nor wait for whoever reads them."""
    main, other = (ros.SingleThreadedExecutor(context=context) for _ in range(2))
    main.add_node(ros.Node("main", context=context))
    other.add_node(ros.Node("stop", context=context))
    other.spin_once(timeout_sec=0.0)
    assert context.graph not in other._tokens  # type: ignore[attr-defined]
    main.spin_once(timeout_sec=0.0)
    assert context.graph in main._tokens  # type: ignore[attr-defined]
    main.shutdown()
    assert context.reads_graph(other)  # type: ignore[attr-defined]


def test_announcements_of_those_that_are_gone_are_forgotten_where_nobody_asks(
    context: ros.Context, node: ros.Node, domain: int, spin_until: SpinUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that asks nothing about the graph kept all that was ever announced."""
    graph = context.graph  # type: ignore[attr-defined]
    kept: list[int] = []

    def deserialized(payload: bytes, kind: str, read: Callable[[bytes, str], Any] = graph_module.deserialize) -> Any:
        info = read(payload, kind)
        if [each.node_name for each in info.node_entities_info_seq] == ["many"]:
            kept.append(len(graph._remote))
        return info

    monkeypatch.setattr(graph_module, "deserialize", deserialized)
    other = ros.Context()
    ros.init(args=[], context=other, domain_id=domain)
    remote = ros.Node("remote", context=other)
    for number in range(8):
        many = Announcer(remote, 20_000)  # another participant's each time, as it says
        spin_until(lambda many=many: many.matched())  # type: ignore[misc]
        many.announce()
        spin_until(lambda number=number: len(kept) > number)  # type: ignore[misc]
        many.close()
    ros.try_shutdown(context=other)
    assert max(kept) <= 4


def test_other_participants_see_the_nodes(
    context: ros.Context, node: ros.Node, domain: int, spin_until: SpinUntil
) -> None:
    """What `ros2 node list` reads: another participant's announcement, whole at each change, gone with it."""
    other = ros.Context()
    ros.init(args=[], context=other, domain_id=domain)
    remote = ros.Node("remote", context=other, namespace="/far")
    remote.create_publisher(String, "/far_topic", 1)
    second = ros.Node("second", context=other)
    expected = {("remote", "/far"), ("second", "/")}
    spin_until(lambda: expected <= set(node.get_node_names_and_namespaces()))
    spin_until(lambda: [i.node_name for i in node.get_publishers_info_by_topic("/far_topic")] == ["remote"])
    second.destroy_node()
    spin_until(lambda: ("second", "/") not in node.get_node_names_and_namespaces())
    ros.try_shutdown(context=other)
    spin_until(lambda: ("remote", "/far") not in node.get_node_names_and_namespaces())


def test_incompatible_qos_is_reported_on_both_sides(node: ros.Node, spin_until: SpinUntil, capfd: Any) -> None:
    events: list[tuple[str, str]] = []
    best_effort = ros.QoSProfile(depth=1, reliability=ros.ReliabilityPolicy.BEST_EFFORT)

    def note(side: str) -> Callable[[Any], None]:
        return lambda info: events.append((side, ros.qos_policy_name_from_kind(info.last_policy_kind)))

    node.create_publisher(
        String, "q", best_effort, event_callbacks=ros.PublisherEventCallbacks(incompatible_qos=note("offered"))
    )
    callbacks = ros.SubscriptionEventCallbacks(incompatible_qos=note("requested"))
    node.create_subscription(String, "q", lambda _: None, 1, event_callbacks=callbacks)
    spin_until(lambda: len(events) == 2)
    assert set(events) == {("offered", "RELIABILITY"), ("requested", "RELIABILITY")}
    node.create_publisher(String, "loud", best_effort)
    latched = ros.QoSProfile(depth=1, reliability=ros.ReliabilityPolicy.BEST_EFFORT,
                             durability=ros.DurabilityPolicy.TRANSIENT_LOCAL)  # fmt: skip
    node.create_subscription(String, "loud", lambda _: None, latched)
    printed: list[str] = []

    def said() -> bool:
        printed.append(capfd.readouterr().err)
        text = "".join(printed)
        return text.count("/test/loud") == 2 and text.count("DURABILITY") == 2

    spin_until(said)


def test_matched_event_counts(node: ros.Node, spin_until: SpinUntil) -> None:
    counts: list[int] = []
    callbacks = ros.PublisherEventCallbacks(matched=lambda info: counts.append(info.current_count))
    node.create_publisher(String, "m", 1, event_callbacks=callbacks)
    subscription = node.create_subscription(String, "m", lambda _: None, 1)
    spin_until(lambda: counts and counts[-1] == 1)
    node.destroy_subscription(subscription)
    spin_until(lambda: counts[-1] == 0)


def test_endpoints_that_are_gone_leave_nothing_behind(context: ros.Context, node: ros.Node) -> None:
    """Else a process that runs for weeks keeps a word of every endpoint that it ever met."""
    from auras_ros.ros.dds import library as dds

    graph = context.graph
    publishers = [node.create_publisher(String, "/brief", 1) for _ in range(50)]
    assert node.count_publishers("/brief") == 50
    for publisher in publishers:
        node.destroy_publisher(publisher)
    deadline = time.monotonic() + 20
    while node.count_publishers("/brief") and time.monotonic() < deadline:
        time.sleep(0.01)  # libddsc withdraws an endpoint in a thread of its own
    room, any_state = 1000, 0x7F
    samples, infos = (ct.c_void_p * room)(), (dds.SampleInfo * room)()
    reader = graph._builtin[dds.BUILTIN_PUBLICATION]
    count = dds.check(dds.read_mask(reader, samples, infos, room, room, any_state), "built-in topic")
    assert sum(not info.valid_data for info in infos[:count]) == 0
    assert count < 50
    dds.return_loan(reader, samples, count)
