"""A callback's exception is counted and logged, and the node continues. An executor that only fails is broken."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from auras_ros.ros import BACKEND, Clock, ClockType, ExternalShutdownException, Node, init, try_shutdown
from auras_ros.ros import callbacks as module
from auras_ros.ros.callbacks import Callbacks, failures_of

STEADY = Clock(clock_type=ClockType.STEADY_TIME)
PATIENCE_S = 20.0


@pytest.fixture
def node(ros_domain_id: int) -> Iterator[Node]:
    init(args=[])
    made = Node("guarded")
    yield made
    made.destroy_node()
    try_shutdown()


class Hostile:
    """A value from outside that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("not shown either")


def nested() -> None:
    inner: list[object] = []
    for _ in range(100_000):
        inner = [inner]
    raise ValueError(inner)


def surrogate() -> None:
    "\ud800".encode()


def hostile() -> None:
    raise ValueError(Hostile(), "\ud800\0")


@pytest.mark.parametrize("fail", [nested, surrogate, hostile], ids=lambda each: each.__name__)
def test_a_callback_that_raises_is_left_and_the_others_go_on(
    node: Node, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fail: object
) -> None:
    calls = {"bad": 0, "good": 0}

    def bad() -> None:
        calls["bad"] += 1
        fail()  # type: ignore[operator]

    def good() -> None:
        calls["good"] += 1

    node.create_timer(0.01, bad, clock=STEADY)
    node.create_timer(0.01, good, clock=STEADY)
    monkeypatch.setattr(module, "BROKEN_S", 60.0)  # a machine that is slow is not broken
    callbacks = Callbacks(node)
    end_s = time.monotonic() + PATIENCE_S
    while min(calls.values()) < 5:
        assert callbacks.spin_once()
        assert time.monotonic() < end_s
    callbacks.close()
    failures = failures_of(node)
    assert failures.count == calls["bad"]
    assert failures.last
    said = capfd.readouterr().err
    assert said.count("a callback failed and was skipped") <= 1 + (time.monotonic() - end_s + PATIENCE_S)
    assert f"in {fail.__name__}" in said or "RecursionError" in said, said  # type: ignore[attr-defined]


def test_a_log_that_fails_as_well_ends_nothing(node: Node) -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    callbacks = Callbacks(node, fail)
    node.create_timer(0.01, hostile, clock=STEADY)
    end_s = time.monotonic() + PATIENCE_S
    while failures_of(node).count < 3:
        assert callbacks.spin_once()
        assert time.monotonic() < end_s
    callbacks.close()


@pytest.mark.skipif(BACKEND != "dds", reason="our layer's messages")
@pytest.mark.parametrize("seconds", [2**31, 2**32])
def test_a_wall_clock_that_no_message_can_say_ends_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: seconds * 10**9)
    node.get_logger().info("a line on /rosout")
    assert node.get_clock().now().to_msg().sec == 2**31 - 1


def test_an_executor_that_does_nothing_but_fail_is_broken(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BROKEN_S", 1.0)
    callbacks = Callbacks(node)

    def spin_once(timeout_sec: float) -> None:
        raise RuntimeError("the waitset is gone")

    monkeypatch.setattr(callbacks._executor, "spin_once", spin_once)
    end_s = time.monotonic() + PATIENCE_S
    turns = 0
    while callbacks.spin_once():
        turns += 1
        assert time.monotonic() < end_s
    assert turns > 1
    callbacks.close()


def test_a_node_whose_callbacks_no_longer_run_after_a_failure_is_broken(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rclpy's is after a message that could not be taken: its group counts as busy for ever."""
    monkeypatch.setattr(module, "STALLED_S", 0.1)
    monkeypatch.setattr(module, "STALLED_TURNS", 3)
    callbacks = Callbacks(node)
    first = [True]

    def spin_once(timeout_sec: float) -> None:
        time.sleep(0.01)
        if first:
            first.clear()
            raise RuntimeError("failed to take a message")

    monkeypatch.setattr(callbacks._executor, "spin_once", spin_once)
    end_s = time.monotonic() + PATIENCE_S
    while callbacks.spin_once():
        assert time.monotonic() < end_s
    callbacks.close()


@pytest.mark.parametrize("error", [MemoryError(), ExternalShutdownException(), KeyboardInterrupt(), SystemExit(3)])
def test_what_means_the_end_is_not_left(node: Node, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    callbacks = Callbacks(node)

    def spin_once(timeout_sec: float) -> None:
        raise error

    monkeypatch.setattr(callbacks._executor, "spin_once", spin_once)
    with pytest.raises(type(error)):
        callbacks.spin_once()
    callbacks.close()
