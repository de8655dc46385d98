"""Nodes within one process: names, the graph, events, simulated time, the executor, shutdown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from auras_ros import ros
from auras_ros.ros.dds.future import Future
from auras_ros.ros.msg import ClockMsg, Float64MultiArray, Image, String, TimeMsg
from auras_ros.ros.srv import SetBool, Trigger

SpinUntil = Callable[[Callable[[], Any]], None]


def test_topics_are_resolved_and_remapped(context: ros.Context) -> None:
    remaps = ["--ros-args", "-r", "image:=/cam/rgb", "-r", "other:chunk:=wrong", "-r", "~/arm:=arm_all"]
    node = ros.Node("agent", context=context, namespace="robot", cli_args=remaps)
    publisher = node.create_publisher(Image, "image", 1)
    assert publisher.topic_name == "/cam/rgb"
    assert node.create_publisher(String, "~/chunk", 1).topic_name == "/robot/agent/chunk"
    assert node.create_publisher(String, "chunk", 1).topic_name == "/robot/chunk"
    assert node.create_service(Trigger, "~/arm", lambda request, response: response).srv_name == "/robot/arm_all"
    assert node.get_logger().name == "robot.agent"


def test_wrong_types_are_refused_by_name(node: ros.Node) -> None:
    with pytest.raises(TypeError, match="message class"):
        node.create_publisher(dict, "x", 1)
    publisher = node.create_publisher(String, "x", 1)
    with pytest.raises(TypeError, match=r"/test/x.*std_msgs/msg/String"):
        publisher.publish(Image())
    client = node.create_client(Trigger, "s")
    with pytest.raises(TypeError, match="request"):
        client.call_async(SetBool.Request())


def test_publish_from_many_threads(node: ros.Node, spin_until: SpinUntil) -> None:
    """The tick thread publishes while others do; nothing is lost or torn on a reliable topic."""
    got: list[list[float]] = []
    profile = ros.QoSProfile(depth=1000)
    node.create_subscription(Float64MultiArray, "ticks", lambda m: got.append(m.data.tolist()), profile)
    publisher = node.create_publisher(Float64MultiArray, "ticks", profile)
    spin_until(lambda: publisher.get_subscription_count() == 1)

    def work(number: int) -> None:
        for step in range(50):
            publisher.publish(Float64MultiArray(data=[number, step]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    spin_until(lambda: len(got) == 200)
    for thread in threads:
        thread.join()
    assert sorted(map(tuple, got)) == [(number, step) for number in range(4) for step in range(50)]


def test_depth_one_gives_the_latest(node: ros.Node, spin_until: SpinUntil) -> None:
    got: list[int] = []
    node.create_subscription(Float64MultiArray, "newest", lambda m: got.append(int(m.data[0])), 1)
    done: list[str] = []
    node.create_subscription(String, "sentinel", lambda m: done.append(m.data), 1)
    numbers, sentinel = node.create_publisher(Float64MultiArray, "newest", 1), node.create_publisher(String, "sentinel", 1)
    spin_until(lambda: numbers.get_subscription_count() and sentinel.get_subscription_count())
    for number in range(20):
        numbers.publish(Float64MultiArray(data=[number]))
    sentinel.publish(String(data="end"))
    spin_until(lambda: done)
    assert got == [19]


def test_a_busy_topic_starves_neither_timer_nor_topic(node: ros.Node, spin_until: SpinUntil) -> None:
    """The callback of a topic publishes to it again without end; timer and other topic still get their turn."""
    ticks: list[int] = []
    others: list[str] = []
    busy = node.create_publisher(String, "busy", 100)
    node.create_subscription(String, "busy", lambda m: (busy.publish(m), busy.publish(m)), 100)
    other = node.create_publisher(String, "other", 10)
    node.create_subscription(String, "other", lambda m: others.append(m.data), 10)
    node.create_timer(0.01, lambda: (ticks.append(1), other.publish(String(data="x"))),
                      clock=ros.Clock(clock_type=ros.ClockType.STEADY_TIME))  # fmt: skip
    spin_until(lambda: busy.get_subscription_count() and other.get_subscription_count())
    busy.publish(String(data="b"))
    spin_until(lambda: len(ticks) > 10 and len(others) > 5)


def test_exceptions_of_callbacks_leave_spin(node: ros.Node, executor: ros.SingleThreadedExecutor) -> None:
    def broken() -> None:
        raise ArithmeticError("from the timer")

    node.create_timer(0.001, broken)
    with pytest.raises(ArithmeticError, match="from the timer"):
        executor.spin()


def test_entities_may_come_and_go_while_spinning(node: ros.Node, spin_until: SpinUntil) -> None:
    got: list[str] = []
    publisher = node.create_publisher(String, "come", 10)
    guard = node.create_guard_condition(
        lambda: got.append("guard") or node.create_subscription(String, "come", lambda m: got.append(m.data), 10)
    )
    threading.Timer(0.05, guard.trigger).start()
    spin_until(lambda: publisher.get_subscription_count() == 1)
    publisher.publish(String(data="x"))
    spin_until(lambda: got == ["guard", "x"])
    [subscription] = [s for s in node.subscriptions if s.topic_name == "/test/come"]
    assert node.destroy_subscription(subscription)
    spin_until(lambda: publisher.get_subscription_count() == 0)


def test_services_in_one_process(node: ros.Node, executor: ros.SingleThreadedExecutor) -> None:
    """Two clients with the same sequence numbers each get their own replies."""

    def answer(request: Any, response: Any) -> Any:
        response.success, response.message = request.data, f"got {request.data}"
        return response

    node.create_service(SetBool, "set", answer)
    clients = [node.create_client(SetBool, "set") for _ in range(2)]
    assert all(client.wait_for_service(timeout_sec=10) for client in clients)
    futures = [client.call_async(SetBool.Request(data=flag)) for client, flag in zip(clients, (True, False), strict=True)]
    for future, flag in zip(futures, (True, False), strict=True):
        executor.spin_until_future_complete(future, timeout_sec=10)
        assert future.result().success is flag
    service = next(iter(node._services))
    assert service.ignored_count == 0
    assert [client.ignored_count for client in clients] == [0, 0]


def test_a_pending_call_is_cancelled_with_its_client(node: ros.Node) -> None:
    client = node.create_client(Trigger, "nobody")
    assert client.wait_for_service(timeout_sec=0.0) is False
    future = client.call_async(Trigger.Request())
    node.destroy_client(client)
    assert future.cancelled()


def test_several_nodes_are_one_participant(context: ros.Context) -> None:
    a = ros.Node("a", context=context, namespace="/one")
    b = ros.Node("b", context=context, namespace="/two")
    a.create_publisher(String, "/shared", 1)
    b.create_publisher(String, "/shared", 1)
    b.create_subscription(String, "/shared", lambda _: None, 1)
    assert a.context.participant is b.context.participant
    assert {("a", "/one"), ("b", "/two")} <= set(a.get_node_names_and_namespaces())
    owners = {(info.node_namespace, info.node_name, info.topic_type) for info in a.get_publishers_info_by_topic("/shared")}
    assert owners == {("/one", "a", "std_msgs/msg/String"), ("/two", "b", "std_msgs/msg/String")}
    assert (a.count_publishers("/shared"), a.count_subscribers("/shared")) == (2, 1)
    assert ("/shared", ["std_msgs/msg/String"]) in a.get_topic_names_and_types()
    b.destroy_node()
    assert ("b", "/two") not in a.get_node_names_and_namespaces()
    deadline = time.monotonic() + 20
    while a.count_publishers("/shared") != 1 and time.monotonic() < deadline:
        time.sleep(0.01)  # libddsc withdraws an endpoint in a thread of its own
    assert a.count_publishers("/shared") == 1


def test_other_participants_see_the_nodes(context: ros.Context, node: ros.Node, domain: int, spin_until: SpinUntil) -> None:
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

    node.create_publisher(String, "q", best_effort, event_callbacks=ros.PublisherEventCallbacks(incompatible_qos=note("offered")))
    node.create_subscription(String, "q", lambda _: None, 1,
                             event_callbacks=ros.SubscriptionEventCallbacks(incompatible_qos=note("requested")))  # fmt: skip
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


def test_simulated_time(node: ros.Node, context: ros.Context, spin_until: SpinUntil) -> None:
    """The clock follows /clock, a jump back reaches the callback, a ROS timer runs on it, and off is off."""
    source = ros.Node("source", context=context)
    clock_out = source.create_publisher(ClockMsg, "/clock", 10)
    jumps: list[int] = []
    threshold = ros.JumpThreshold(min_forward=None, min_backward=ros.Duration(nanoseconds=-1), on_clock_change=False)
    node.get_clock().create_jump_callback(threshold, post_callback=lambda jump: jumps.append(jump.delta.nanoseconds))
    before_ns = node.get_clock().now().nanoseconds
    assert abs(before_ns - time.time_ns()) < 10**10
    assert node.set_parameters([ros.Parameter("use_sim_time", value=True)])[0].successful
    ticks: list[int] = []
    node.create_timer(1.0, lambda: ticks.append(node.get_clock().now().nanoseconds))

    def at(sec: int) -> None:
        clock_out.publish(ClockMsg(clock=TimeMsg(sec=sec)))
        spin_until(lambda: node.get_clock().now().nanoseconds == sec * 10**9)

    spin_until(lambda: clock_out.get_subscription_count() == 1)
    assert node.get_clock().now().nanoseconds == 0
    jumps.clear()  # switching on was itself a step back from system time
    at(100)
    spin_until(lambda: ticks == [100 * 10**9])
    at(5)
    assert jumps == [-95 * 10**9]
    at(6)
    spin_until(lambda: ticks == [100 * 10**9, 6 * 10**9])
    assert node.set_parameters([ros.Parameter("use_sim_time", value=False)])[0].successful
    assert node.get_clock().now().nanoseconds >= before_ns
    spin_until(lambda: clock_out.get_subscription_count() == 0)


def test_large_messages_outlive_everything(domain: int) -> None:
    """A received image lends libddsc's memory: it must stay good after the context and the domain are gone."""
    context = ros.Context()
    ros.init(args=[], context=context, domain_id=domain)
    node = ros.Node("lender", context=context)
    executor = ros.SingleThreadedExecutor(context=context)
    executor.add_node(node)
    kept: list[Any] = []
    node.create_subscription(Image, "lent", kept.append, 1)
    publisher = node.create_publisher(Image, "lent", 1)
    pixels = np.random.default_rng(1).integers(0, 256, 921600, dtype=np.uint8)
    deadline = time.monotonic() + 20
    while not kept and time.monotonic() < deadline:
        publisher.publish(Image(data=pixels))
        executor.spin_once(timeout_sec=0.2)
    ros.shutdown(context=context)
    view = kept.pop().data
    assert not view.flags.owndata
    np.testing.assert_array_equal(view, pixels)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_after_shutdown(domain: int) -> None:
    context = ros.Context()
    ros.init(args=[], context=context, domain_id=domain)
    ended: list[str] = []
    context.on_shutdown(lambda: ended.append("callback"))
    node = ros.Node("late", context=context)
    publisher = node.create_publisher(String, "x", 1)
    executor = ros.SingleThreadedExecutor(context=context)
    executor.add_node(node)
    ros.shutdown(context=context)
    assert ended == ["callback"]
    with pytest.raises(RuntimeError, match="/late_x|/x"):
        publisher.publish(String())
    with pytest.raises(ros.ExternalShutdownException):
        executor.spin_once(timeout_sec=0)
    with pytest.raises(ros.ExternalShutdownException):
        ros.spin(node)
    executor.spin()  # returns at once
    with pytest.raises(RuntimeError, match="shut down"):
        ros.shutdown(context=context)
    ros.try_shutdown(context=context)
    node.destroy_node()
    node.destroy_node()
    with pytest.raises(RuntimeError, match="init"):
        ros.Node("never", context=context)
    ros.init(args=[], context=context, domain_id=domain)
    assert ros.ok(context=context)
    ros.Node("again", context=context)
    ros.try_shutdown(context=context)


def test_shutdown_from_another_thread_wakes_spin(domain: int) -> None:
    context = ros.Context()
    ros.init(args=[], context=context, domain_id=domain)
    executor = ros.SingleThreadedExecutor(context=context)
    node = ros.Node("sleeper", context=context)
    executor.add_node(node)
    started, outcome = threading.Event(), []

    def spin() -> None:
        started.set()
        try:
            executor.spin()
            outcome.append("returned")
        except ros.ExternalShutdownException:
            outcome.append("external")

    thread = threading.Thread(target=spin)
    thread.start()
    started.wait(10)
    ros.shutdown(context=context)
    thread.join(20)
    assert not thread.is_alive()
    assert outcome in (["external"], ["returned"])


def test_shutdown_while_another_thread_publishes(domain: int) -> None:
    """The tick thread is in publish() when the context ends: an error there, never a crash."""
    for _ in range(5):
        context = ros.Context()
        ros.init(args=[], context=context, domain_id=domain)
        publisher = ros.Node("ticker", context=context).create_publisher(Float64MultiArray, "t", 1)
        running, outcome = threading.Event(), []

        def tick(publisher: Any = publisher, running: Any = running, outcome: Any = outcome) -> None:
            message = Float64MultiArray(data=range(64))
            try:
                while True:
                    publisher.publish(message)
                    running.set()
            except RuntimeError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=tick)
        thread.start()
        assert running.wait(10)
        ros.shutdown(context=context)
        thread.join(20)
        assert not thread.is_alive()
        assert "shut down" in outcome[0]


def test_futures() -> None:
    future, seen = Future(), []
    future.add_done_callback(lambda f: seen.append(f.result()))
    assert not future.done()
    assert future.result() is None
    future.set_result(3)
    future.set_result(4)
    future.add_done_callback(lambda f: seen.append(f.result()))
    assert seen == [3, 3]
    failed = Future()
    failed.set_exception(KeyError("k"))
    assert isinstance(failed.exception(), KeyError)
    with pytest.raises(KeyError):
        failed.result()
