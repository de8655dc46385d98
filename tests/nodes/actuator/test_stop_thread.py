"""The emergency stop's own thread: what it takes for a press, whom it stands above, and that it waits for nobody, the
log included. In this process; what an actuator does with it: `test_stop`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.nodes.actuator import command_loop, emergency_stop, realtime, stop_buttons
from auras_ros.nodes.actuator.emergency_stop import BACKLOG, FLOOD, UNKNOWN, EmergencyStop
from auras_ros.nodes.actuator.node import Actuator
from auras_ros.nodes.actuator.stop_words import StopRules
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.ros import Context, Node, QoSProfile, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.bounded import RefusedMessages
from auras_ros.ros.msg import Bool
from tests.nodes.wire import LATCHED, PATIENCE_S

RELEASED = b"\0\1\0\0\0\0\0\0"  # Bool(data=False)


def until(condition: Callable[[], Any], meanwhile: Callable[[], object] = lambda: None) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        meanwhile()
        time.sleep(0.002)


@pytest.fixture
def owner(domain: int) -> Iterator[Node]:
    init(args=[])
    made = Node("actuator")
    yield made
    made.destroy_node()
    try_shutdown()


@pytest.fixture
def latched() -> list[str]:
    return []


@pytest.fixture
def stop(owner: Node, latched: list[str]) -> Iterator[EmergencyStop]:
    """One that does not listen yet: what is said to it waits, as for a process that is stopped."""
    made = EmergencyStop(owner, latched.append, RefusedMessages(owner), QosWatch(owner, lambda: None), 0)
    yield made
    made.close()


@pytest.fixture
def other(domain: int, owner: Node) -> Iterator[Node]:
    """A node of another participant."""
    context = Context()
    init(args=[], context=context, domain_id=domain)
    yield Node("other", context=context)
    try_shutdown(context=context)


# -- words that come faster than they are read ----------------------------------------------------------------


def feed(stop: EmergencyStop, monkeypatch: pytest.MonkeyPatch, words: int, each_s: float, waiting: bool) -> None:
    """So many words, each read after each_s; `waiting`: the next one has come by then, so that none is waited for."""
    now, left, empty = [0.0], [words], [False]
    monkeypatch.setattr(emergency_stop, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Fed:
        def spin_once(self, wait_s: float) -> bool:
            if not wait_s and empty[0]:
                return True
            if not left[0]:
                stop._ended.set()
                return True
            left[0] -= 1
            now[0] += each_s
            empty[0] = not waiting
            stop._on_message(stop._words.topics[0], RELEASED, {"publisher_gid": b"x" * 16})
            return True

        def close(self) -> None:
            pass

    monkeypatch.setattr(emergency_stop, "Callbacks", lambda node: Fed())
    stop.start()
    until(lambda: not stop.working())


def test_a_queue_that_is_read_too_slowly_to_be_emptied_is_taken_for_a_press(
    stop: EmergencyStop, latched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been full meanwhile: fewer than FLOOD words are read in a second, and more came."""
    feed(stop, monkeypatch, words=2000, each_s=0.003, waiting=True)
    assert set(latched) == {BACKLOG}
    assert stop.buttons.pressers() == ["an unknown publisher"]


def test_a_button_that_speaks_often_is_no_flood(
    stop: EmergencyStop, latched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty times a second, for ever: the wait for its next word is over before it ends by itself."""
    feed(stop, monkeypatch, words=4 * FLOOD, each_s=0.02, waiting=False)
    assert latched == []


# -- the latch comes first ------------------------------------------------------------------------------------

PRESSED = b"\0\1\0\0\1\0\0\0"  # Bool(data=True)
BUTTON = b"b" * 16


class Hostile(dict[str, Any]):
    """What a middleware might say of a message one day: asking anything of it fails."""

    def get(self, name: str, default: Any = None) -> Any:
        raise TypeError("a new form")

    __getitem__ = get  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("info", "presser"),
    [
        ({}, UNKNOWN),
        ({"publisher_gid": BUTTON}, BUTTON),
        ({"publisher_gid": list(BUTTON)}, BUTTON),
        ({"publisher_gid": {"implementation_identifier": "rmw_fastrtps_cpp", "data": BUTTON}}, BUTTON),
        ({"publisher_gid": {"implementation_identifier": "rmw_fastrtps_cpp"}}, UNKNOWN),
        ({"publisher_gid": "of another type"}, UNKNOWN),
        ({"publisher_gid": None}, UNKNOWN),
        (Hostile(), UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_a_press_latches_whatever_the_middleware_says_of_its_publisher(
    stop: EmergencyStop, latched: list[str], info: Any, presser: bytes
) -> None:
    """Guards against rclpy 9: there the identity is a mapping, and reading it as bytes lost every press."""
    stop._on_message(stop._words.topics[0], PRESSED, info)
    assert latched == [emergency_stop.PRESSED]
    assert list(stop._words.topics[0].down) == [presser]


@pytest.mark.parametrize("name", ["publisher_of", "time", "partial"])
def test_a_press_latches_though_everything_after_it_fails(
    stop: EmergencyStop, latched: list[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(emergency_stop, name, SimpleNamespace(monotonic=fail) if name == "time" else fail)
    with contextlib.suppress(RuntimeError):
        stop._on_message(stop._words.topics[0], PRESSED, {"publisher_gid": BUTTON})
    assert latched == [emergency_stop.PRESSED]


@pytest.mark.parametrize("payload", [b"", b"\0\1\0\0", b"\0\1\0\0\xff", b"\0\1\0\0\1" + bytes(300)])
def test_bytes_that_are_no_bool_are_refused_and_counted_and_are_no_press(
    stop: EmergencyStop, latched: list[str], payload: bytes
) -> None:
    stop._on_message(stop._words.topics[0], payload, {"publisher_gid": BUTTON})
    stop.look()
    assert latched == []
    assert stop._refused.count == 1
    assert stop.buttons.pressed is None


def test_an_error_that_no_ros_raised_yet_is_a_refusal(
    stop: EmergencyStop, latched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("planted")

    monkeypatch.setattr(emergency_stop, "deserialize_message", fail)
    stop._on_message(stop._words.topics[0], PRESSED, {})
    stop.look()
    assert (latched, stop._refused.count) == ([], 1)


def test_a_message_that_both_readers_hear_counts_once(
    stop: EmergencyStop, owner: Node, other: Node, latched: list[str]
) -> None:
    """The transient local reader and the volatile one. The latch itself may be told twice: it is one."""
    kept = other.create_publisher(Bool, "emergency_stop", LATCHED)
    volatile = other.create_publisher(Bool, "emergency_stop", QoSProfile(depth=10))
    until(lambda: kept.get_subscription_count() == 2)
    until(lambda: volatile.get_subscription_count() == 1)
    stop.start()
    for number, button in enumerate((kept, volatile, kept), start=1):
        button.publish(Bool(data=True))
        until(lambda number=number: stop._words.presses >= number)
    kept.publish(Bool(data=False))
    volatile.publish(Bool(data=True))
    until(lambda: stop._words.presses >= 4)
    assert stop._words.presses == 4
    assert set(latched) == {emergency_stop.PRESSED}


# -- who can be heard -----------------------------------------------------------------------------------------


def test_a_button_that_was_just_found_may_still_have_something_to_say(
    stop: EmergencyStop, owner: Node, other: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against arming in the seconds in which Fast DDS has not yet repeated a button's last message."""
    executor = SingleThreadedExecutor()
    executor.add_node(owner)
    button = other.create_publisher(Bool, "emergency_stop", LATCHED)
    until(lambda: stop.buttons.unheard() == ["/other"], lambda: executor.spin_once(0.0))
    late_s = time.monotonic() + stop_buttons.HISTORY_S + 1.0
    with monkeypatch.context() as later:
        later.setattr(stop_buttons, "time", SimpleNamespace(monotonic=lambda: late_s))
        assert stop.buttons.unheard() == [], "a button that never says anything keeps nobody from arming"
    assert stop.buttons.unheard() == ["/other"]
    stop.start()
    button.publish(Bool(data=False))
    until(lambda: stop.buttons.pressed is False)
    assert stop.buttons.unheard() == []


# -- its place among the threads ------------------------------------------------------------------------------


def test_nobody_lowers_it_to_the_executors_priority(
    domain: int, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What raises every thread of the process comes before those that stand above the others."""
    asked: list[tuple[str, int, bool]] = []

    def enter(priority: int, *, all_threads: bool = False) -> str:
        asked.append((threading.current_thread().name, priority, all_threads))
        return "noted"

    for module in (realtime, command_loop, emergency_stop):
        monkeypatch.setattr(module, "enter_realtime", enter)
    monkeypatch.setattr(realtime, "freeze_collector", lambda: "left alone")
    init(args=["--ros-args", "-p", f"checkpoint:={checkpoint}", "-p", "lock_memory:=false"])
    actuator = Actuator()
    try:
        actuator.start()
        until(lambda: len(asked) == 3)
    finally:
        actuator.halt()
        actuator.destroy_node()
        try_shutdown()
    assert asked[0] == (threading.current_thread().name, 50, True)
    assert sorted(asked[1:]) == [("emergency stop", 51, False), ("tick", 51, False)]


# -- required buttons -------------------------------------------------------------------------------------


def test_a_button_that_pauses_and_dies_before_it_counts_again_is_missed(
    stop: EmergencyStop, latched: list[str]
) -> None:
    """Guards against a silence that nobody judges: after a pause the button counts only with its third word."""
    stop.rules = stop._words.rules = StopRules(required=True, max_silence_s=0.5)
    topic = stop._words.topics[0]
    now_s = time.monotonic()
    for at_s in (now_s - 2.0, now_s - 1.9, now_s - 1.8, now_s - 1.0):
        stop._words.note_repetition(topic, BUTTON, False, at_s)
    stop._judge_silence()
    assert latched == ["emergency stop: no button repeats /emergency_stop within 500 ms"]
    assert stop.buttons.latched == latched[0]
