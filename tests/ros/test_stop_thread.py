"""The emergency stop's thread on our own layer: whatever arrives at its service's endpoint counts, another thread
writes its log lines, and it reads nothing of what others announce."""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.nodes.actuator import command_loop, emergency_stop, realtime
from auras_ros.nodes.actuator.emergency_stop import REQUESTED, EmergencyStop
from auras_ros.nodes.actuator.node import Actuator
from auras_ros.ros import Node, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.msg import Bool, String
from auras_ros.ros.srv import Trigger
from tests.nodes.actuator.test_stop_thread import latched, other, owner, stop, until
from tests.nodes.conftest import checkpoint, domain
from tests.nodes.wire import LATCHED, PATIENCE_S

__all__ = ["checkpoint", "domain", "latched", "other", "owner", "stop"]
UNREADABLE = b"\0\1\0\0\1\0\0\0"  # a request without the 16 bytes of its client


def requests(other: Node) -> Any:
    """Writes whatever is asked for on the request topic."""
    from auras_ros.ros.dds.endpoint import Writer

    kind = Trigger.Request._ros_type
    writer = Writer(other.context.participant, "rq/actuator/stopRequest", kind, emergency_stop.REQUESTS)
    until(writer.matched_count)
    return writer


@pytest.mark.parametrize("payload", [UNREADABLE, bytes(300_000)], ids=["short", "huge"])
def test_whatever_comes_as_a_request_stops(
    stop: EmergencyStop, latched: list[str], other: Node, payload: bytes
) -> None:
    """A Trigger's request is empty: there is nothing in it that could have said anything else."""
    stop.start()
    requests(other).write([payload])
    until(lambda: latched)
    assert latched == [REQUESTED]


def test_a_call_is_answered_though_many_others_waited_behind_it(stop: EmergencyStop, other: Node) -> None:
    client = other.create_client(Trigger, "actuator/stop")
    assert client.wait_for_service(PATIENCE_S)
    garbage = requests(other)
    called = client.call_async(Trigger.Request())
    for _ in range(100):
        garbage.write([UNREADABLE])
    stop.start()
    executor = SingleThreadedExecutor(context=other.context)
    executor.add_node(other)
    executor.spin_until_future_complete(called, PATIENCE_S)
    assert called.result().success


def test_a_publisher_of_another_type_is_named(stop: EmergencyStop, owner: Node, other: Node) -> None:
    """DDS connects it with nobody, and nothing else would say so."""
    executor = SingleThreadedExecutor()
    executor.add_node(owner)
    other.create_publisher(String, "emergency_stop", LATCHED)
    until(stop.buttons.publishers, lambda: executor.spin_once(0.0))
    until(lambda: stop.buttons.deaf_to() == ["/other"], lambda: executor.spin_once(0.0))


def test_a_flood_that_was_taken_back_makes_no_silent_publisher_heard(
    stop: EmergencyStop, owner: Node, other: Node
) -> None:
    executor = SingleThreadedExecutor()
    executor.add_node(owner)
    other.create_publisher(Bool, "emergency_stop", LATCHED)
    until(stop.buttons.publishers, lambda: executor.spin_once(0.0))
    assert not stop.buttons._is_present(stop._words.topics[0]), "it has said nothing"
    stop._press(stop._words.topics[0], emergency_stop.FLOODED)
    assert stop.buttons.release()[0]
    assert not stop.buttons._is_present(stop._words.topics[0])


def test_it_waits_for_nobody_who_writes_the_log(
    stop: EmergencyStop, latched: list[str], other: Node, capfd: pytest.CaptureFixture[str]
) -> None:
    """The executor may stand in a write, to a disk that hangs, with the log's lock held."""
    from auras_ros.ros.dds import logger

    button = other.create_publisher(Bool, "emergency_stop", LATCHED)
    garbage = requests(other)
    stop.start()
    with logger._lock:
        garbage.write([UNREADABLE])
        until(lambda: latched == [REQUESTED])
        button.publish(Bool(data=True))
        until(lambda: emergency_stop.PRESSED in latched)
    assert "ignored a payload" not in capfd.readouterr().err
    stop.look()
    assert "[actuator_stop]: ignored a payload" in capfd.readouterr().err


def test_it_reads_nothing_of_what_others_announce(
    domain: int, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An announcement may be large, and whoever reads it holds the graph's lock: both would delay a press. So the
    executor of the process must be the first, as it is in `run_node`."""
    for module in (realtime, command_loop, emergency_stop):
        monkeypatch.setattr(module, "enter_realtime", lambda *_, **more: "left alone")
    monkeypatch.setattr(realtime, "freeze_collector", lambda: "left alone")
    init(args=["--ros-args", "-p", f"checkpoint:={checkpoint}", "-p", "lock_memory:=false"])
    node: Any = Actuator()
    callbacks = Callbacks(node)
    try:
        node.start()
        thread = node._inputs.stop.node
        until(lambda: thread.executor is not None, callbacks.spin_once)
        until(lambda: thread.executor._tokens and node.executor._tokens, callbacks.spin_once)
        assert node.context.graph not in thread.executor._tokens
        assert node.context.graph in node.executor._tokens
    finally:
        node.halt()
        callbacks.close()
        node.destroy_node()
        try_shutdown()
