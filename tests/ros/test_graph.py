"""Nodes of one participant and of others, and the events of their endpoints."""

from __future__ import annotations

import ctypes as ct
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.live.soak.own_layer import announcer
from auras_ros.ros.dds import announced
from auras_ros.ros.dds.cdr import CdrError
from auras_ros.ros.dds.endpoint import Writer
from auras_ros.ros.dds.graph import _WRITER_QOS
from auras_ros.ros.dds.messages import message_type, serialize_bytes
from auras_ros.ros.dds.participant import Participant
from auras_ros.ros.msg import String

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


def test_an_executor_from_before_a_second_init_reads_nothing(context: ros.Context, domain: int) -> None:
    before = ros.SingleThreadedExecutor(context=context)
    before.add_node(ros.Node("before", context=context))
    ros.try_shutdown(context=context)
    ros.init(args=[], context=context, domain_id=domain)
    after = ros.SingleThreadedExecutor(context=context)
    after.add_node(ros.Node("after", context=context))
    assert not before.is_shutdown
    after.spin_once(timeout_sec=0.0)
    assert context.graph in after._tokens  # type: ignore[attr-defined]


def announcement(participant: bytes, nodes: int, gids: int) -> bytes:
    """A participant of so many nodes with so many readers each."""
    gid, node = (message_type(f"rmw_dds_common/msg/{name}") for name in ("Gid", "NodeEntitiesInfo"))
    readers = [[gid(data=(i * gids + j).to_bytes(16, "little")) for j in range(gids)] for i in range(nodes)]
    named = [node(node_namespace="/", node_name=f"n{i}", reader_gid_seq=readers[i]) for i in range(nodes)]
    return serialize_bytes(message_type(announced.INFO)(gid=gid(data=participant), node_entities_info_seq=named))


@pytest.fixture
def announce(domain: int, context: ros.Context, spin_until: SpinUntil) -> Iterator[Callable[..., bytes]]:
    """Announces for a live participant of its own, and returns its gid; with a node in it where `partner` names a
    topic that the node publishes."""
    others: list[Any] = []

    def made(nodes: int, gids: int, partner: str = "") -> bytes:
        other = ros.Context()
        others.append(other)
        ros.init(args=[], context=other, domain_id=domain)
        if partner:
            ros.Node("partner", context=other).create_publisher(String, partner, 1)
        participant = other.participant  # type: ignore[attr-defined]
        writer = Writer(participant, "ros_discovery_info", announced.INFO, _WRITER_QOS)
        spin_until(lambda: writer.matched_count() >= 1)
        writer.write([announcement(participant.gid, nodes, gids)])
        return bytes(participant.gid)

    yield made
    for other in others:
        ros.try_shutdown(context=other)


def test_no_object_is_kept_of_an_endpoint_that_somebody_announces() -> None:
    """Freeing, replacing or collecting them would keep the interpreter from the thread of an emergency stop."""
    payload = announcement(bytes(16), 8, 1000)
    gc.collect()
    before = len(gc.get_objects())
    kept = announced.Announcements()
    for _ in range(3):
        kept.put(announced.read(payload))
    assert len(gc.get_objects()) - before < 100
    assert kept.size == len(payload)
    assert [kept.owner(bytes(16), number.to_bytes(16, "little")) for number in (0, 999, 1000, 7999, 8000)] == [
        ("n0", "/"), ("n0", "/"), ("n1", "/"), ("n7", "/"), None
    ]  # fmt: skip
    assert kept.nodes() == [(f"n{number}", "/") for number in range(8)]


@pytest.mark.parametrize(("nodes", "gids"), [(1, announced.MAX_BYTES // 16), (announced.MAX_BYTES // 256 + 1, 0)])
def test_an_announcement_larger_than_any_good_one_is_not_read(nodes: int, gids: int) -> None:
    """By its bytes, and by its nodes, which are objects."""
    with pytest.raises(CdrError, match="at most"):
        announced.read(announcement(bytes(16), nodes, gids))


def test_any_part_of_an_announcement_is_refused() -> None:
    whole = announcement(bytes(16), 2, 2)
    assert announced.read(whole).nodes == (("n0", "/"), ("n1", "/"))
    for end in range(len(whole) - 3):
        with pytest.raises(CdrError):
            announced.read(whole[:end])
    with pytest.raises(CdrError, match="left over"):
        announced.read(whole + bytes(4))


def test_all_that_is_kept_is_bounded_and_partners_stay() -> None:
    """Live participants are as many as somebody likes."""
    kept, partner = announced.Announcements(), b"p" * 16
    payload = announcement(bytes(16), 1, 8000)
    kept.put(announced.read(announcement(partner, 3, 20)))
    for number in range(100):
        kept.put(replace(announced.read(payload), participant=number.to_bytes(16, "little")))
        if kept.full:
            assert kept.make_room({partner}) > 1
        assert kept.size <= announced.MAX_SUM_BYTES
    assert kept.nodes()[:3] == [("n0", "/"), ("n1", "/"), ("n2", "/")]
    assert kept.owner((99).to_bytes(16, "little"), bytes(16)) == ("n0", "/")  # the newest stranger
    for number in range(100):  # and were they all partners, the small ones stay
        kept.put(replace(announced.read(payload), participant=number.to_bytes(16, "little")))
        if kept.full:
            kept.make_room({partner} | {each.to_bytes(16, "little") for each in range(100)})
    assert kept.size <= announced.MAX_SUM_BYTES
    assert kept.owner(partner, bytes(16)) == ("n0", "/")


def test_a_live_participant_that_announces_40_000_endpoints_is_counted_and_not_kept(
    context: ros.Context, node: ros.Node, announce: Callable[..., bytes], spin_until: SpinUntil, capfd: Any
) -> None:
    """It is there for as long as it likes, so nothing would ever be forgotten of it."""
    graph = context.graph  # type: ignore[attr-defined]
    announce(1, 40_000)
    spin_until(lambda: graph.ignored_count >= 1)
    assert graph._remote.size < announced.MAX_BYTES
    assert capfd.readouterr().err.count("an announcement of nodes is ignored") == 1


def test_where_live_participants_announce_too_much_strangers_go_first(
    context: ros.Context,
    node: ros.Node,
    announce: Callable[..., bytes],
    spin_until: SpinUntil,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    """The newest does not push the loop's own partners out; it is counted, and logged once."""
    graph = context.graph  # type: ignore[attr-defined]
    monkeypatch.setattr(announced, "MAX_SUM_BYTES", 200 << 10)
    monkeypatch.setattr(announced, "ROOM_BYTES", 50 << 10)
    node.create_subscription(String, "/shared", lambda _: None, 1)
    partner = announce(1, 7000, partner="/shared")
    spin_until(lambda: node.count_publishers("/shared") == 1 and partner in graph._remote)
    stranger = announce(1, 7000)
    spin_until(lambda: graph.ignored_count >= 1)
    assert partner in graph._remote
    assert stranger not in graph._remote
    assert graph._remote.size <= 200 << 10
    assert capfd.readouterr().err.count("so some have no name (logged once)") == 1


def test_announcements_of_those_that_are_gone_are_forgotten_where_nobody_asks(
    context: ros.Context, node: ros.Node, domain: int, spin_until: SpinUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that asks nothing about the graph kept all that was ever announced."""
    graph = context.graph  # type: ignore[attr-defined]
    monkeypatch.setattr(announced, "MAX_SUM_BYTES", 300 << 10)
    sizes: list[int] = []

    def put(each: Any, put: Callable[[Any], None] = graph._remote.put) -> None:
        put(each)
        if each.nodes == (("many", "/"),):
            sizes.append(graph._remote.size)

    monkeypatch.setattr(graph._remote, "put", put)
    for number in range(8):
        participant = Participant(domain)
        many, payload = announcer(participant, 8_000)
        spin_until(lambda many=many: many.matched_count() > 0)  # type: ignore[misc]
        many.write(payload)
        spin_until(lambda number=number: len(sizes) > number)  # type: ignore[misc]
        participant.close()
    assert max(sizes) < 500 << 10
    assert graph.ignored_count == 0  # they were forgotten because they are gone


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
    assert node.count_publishers("/brief") == 0
    room, any_state = 1000, 0x7F
    samples, infos = (ct.c_void_p * room)(), (dds.SampleInfo * room)()
    reader = graph._builtin[dds.BUILTIN_PUBLICATION]
    count = dds.check(dds.read_mask(reader, samples, infos, room, room, any_state), "built-in topic")
    assert sum(not info.valid_data for info in infos[:count]) == 0
    assert count < 50
    dds.return_loan(reader, samples, count)
