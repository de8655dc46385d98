"""Nodes within one process: names, topics, services, simulated time, the executor."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

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
    numbers, sentinel = (
        node.create_publisher(Float64MultiArray, "newest", 1),
        node.create_publisher(String, "sentinel", 1),
    )
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

    def come() -> None:
        timer.cancel()
        got.append("timer")
        node.create_subscription(String, "come", lambda m: got.append(m.data), 10)

    timer = node.create_timer(0.05, come)
    spin_until(lambda: publisher.get_subscription_count() == 1)
    publisher.publish(String(data="x"))
    spin_until(lambda: got == ["timer", "x"])
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
    futures = [
        client.call_async(SetBool.Request(data=flag)) for client, flag in zip(clients, (True, False), strict=True)
    ]
    for future, flag in zip(futures, (True, False), strict=True):
        executor.spin_until_future_complete(future, timeout_sec=10)
        assert future.result().success is flag
    service = next(iter(node.services))
    assert service.ignored_count == 0
    assert [client.ignored_count for client in clients] == [0, 0]


def test_a_pending_call_is_cancelled_with_its_client(node: ros.Node) -> None:
    client = node.create_client(Trigger, "nobody")
    assert client.wait_for_service(timeout_sec=0.0) is False
    future = client.call_async(Trigger.Request())
    node.destroy_client(client)
    assert future.cancelled()


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
