"""The end of a context: nothing hangs, nothing crashes, lent memory stays good."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from auras_ros import ros
from auras_ros.ros.msg import Float64MultiArray, Image, String


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
    with pytest.raises(RuntimeError, match="/x: "):
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


def test_a_shutdown_while_the_executor_attaches_is_a_shutdown(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread ends the context between the executor's look at it and its waitset."""
    context = ros.Context()
    ros.init(args=[], context=context, domain_id=domain)
    executor = ros.SingleThreadedExecutor(context=context)
    executor.add_node(ros.Node("n", context=context))
    attach = executor._attach

    def late() -> None:
        ros.shutdown(context=context)
        attach()

    monkeypatch.setattr(executor, "_attach", late)
    with pytest.raises(ros.ExternalShutdownException):
        executor.spin_once(timeout_sec=0)


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
