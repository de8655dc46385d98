"""Short presses of the emergency stop, beside whatever may keep the actuator from hearing them.

Each must be latched: a command of state `stopped` goes out, though the release follows at once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from auras_ros.live.soak import own_layer
from auras_ros.live.soak.garbage import garbage_on_inputs
from auras_ros.live.soak.harness import SoakHarness, Times
from auras_ros.live.soak.topics import CHUNKS, Topic
from auras_ros.nodes.common.qos import LATCHED, RELIABLE
from auras_ros.ros import QoSProfile
from auras_ros.ros.msg import Bool, Float64MultiArray, JointState, MultiArrayDimension, String

PRESSED_S = (0.02, 0.1)
LONGEST = 2.0, 0.01  # so many times what was meant, and so many seconds more, is still that press
AGAIN = 3
# How long the process is stopped: less than its lease. At least so long before the press.
STOPPED_S, AROUND_S = 0.2, 0.05
GARBAGE_HZ, ASKED_HZ = 20.0, 100.0
DESCRIPTION_BYTES = 3_900_000
MANY_JOINTS, MANY_DIMENSIONS = 300_000, 200_000
ENTITIES = 7_000, 40_000  # among the largest that are kept; refused by its size
# As long as `ros2 topic pub --once` lives after its message by default. A publisher sends as soon as it knows a reader;
# what arrives before the reader knows the publisher comes again, while the publisher is there.
KEEP_ALIVE_S = 0.1
VOLATILE_BUTTON: Topic = (Bool, "emergency_stop", QoSProfile(depth=10))
Around = Callable[[SoakHarness], AbstractContextManager[None]]


class NotTimedError(Exception):
    """Every press was latched, and none could be timed: the fault says nothing."""


@dataclass(frozen=True)
class StopPressCase:
    """A press of so many seconds, while `around` lasts."""

    name: str
    seconds: float
    around: Around
    # The process does not run when it is pressed.
    frozen: bool = False
    # By a publisher that keeps nothing for late joiners, as `ros2 topic pub` is one.
    volatile: bool = False


def idle(harness: SoakHarness) -> AbstractContextManager[None]:
    return nullcontext()


def description(harness: SoakHarness) -> AbstractContextManager[None]:
    """One that nobody has read before."""
    filler = f"<!--{'x' * 390}-->"
    name = f"{harness.rng.getrandbits(64):x}"
    text = f'<robot name="{name}">{filler * (DESCRIPTION_BYTES // len(filler))}</robot>'
    return _large(harness, (String, "robot_description", LATCHED), String(data=text))


def large_states(harness: SoakHarness) -> AbstractContextManager[None]:
    return _large(harness, (JointState, "joint_states", RELIABLE), JointState(name=["joint"] * MANY_JOINTS))


def large_chunk(harness: SoakHarness) -> AbstractContextManager[None]:
    message = Float64MultiArray()
    message.layout.dim = [MultiArrayDimension()] * MANY_DIMENSIONS
    return _large(harness, CHUNKS, message)


@contextmanager
def _large(harness: SoakHarness, topic: Topic, message: Any) -> Iterator[None]:
    """One message, just before the press."""
    with harness.publisher(topic) as publisher:
        publisher.publish(message)
        yield


def announcement(harness: SoakHarness) -> AbstractContextManager[None]:
    return harness.own_layer.announcing(ENTITIES)


@contextmanager
def garbage(harness: SoakHarness) -> Iterator[None]:
    """On every input but the one that is pressed; before the press and while it lasts."""
    with garbage_on_inputs(harness) as say, harness.timer(1.0 / GARBAGE_HZ, say):
        harness.pause(3.0 / GARBAGE_HZ)
        yield


@contextmanager
def deaf_client(harness: SoakHarness) -> Iterator[None]:
    """Of a service that is asked all the time."""
    service, request_type = "actuator/get_parameters", "rcl_interfaces/srv/GetParameters_Request"
    with harness.own_layer.asking(service, request_type, ASKED_HZ):
        harness.pause(10.0 / ASKED_HZ)
        yield


@contextmanager
def process_stopped(harness: SoakHarness) -> Iterator[None]:
    """The press and its release fall into the stop of the process."""
    end_s = time.monotonic() + STOPPED_S
    with harness.stopped("actuator"):
        time.sleep(AROUND_S)
        yield
        time.sleep(max(0.0, end_s - time.monotonic()))


def cases() -> list[StopPressCase]:
    """Every pair of what is beside a press and how long it lasts; and one that is released at once."""
    beside: dict[str, Around] = {"idle": idle, "description": description, "garbage": garbage}
    beside |= {"joint states": large_states, "chunk": large_chunk}
    if own_layer.available():
        beside |= {"deaf client": deaf_client, "announcement": announcement}
    beside["process stopped"] = process_stopped
    made = [
        StopPressCase(f"{name}, {seconds * 1e3:g} ms", seconds, around, frozen=around is process_stopped)
        for (name, around), seconds in itertools.product(beside.items(), PRESSED_S)
    ]
    return [
        *made,
        StopPressCase("back to back", 0.0, idle),
        *[StopPressCase(f"volatile, {seconds * 1e3:g} ms", seconds, idle, volatile=True) for seconds in PRESSED_S],
    ]


def stop_pressed(harness: SoakHarness) -> Times:
    """One of the cases."""
    return press(harness, harness.draw("stop_pressed", cases()))


def press(harness: SoakHarness, case: StopPressCase) -> Times:
    """From the press, or from when the process goes on, to the first command that is stopped.

    Where that cannot be timed it is pressed again, at most three times, and counted: an actuator that stood still for
    longer than its lease was disarmed, it is stopped and sends nothing; and where this process stood still, the press
    was longer than it should have been. A press that is lost is lost, whatever else there was. Raises NotTimedError."""
    for _ in range(1 + AGAIN):
        times = _press(harness, case)
        if times is not None:
            return times
        harness.presses_again += 1
        harness.drive()
    text = f"{1 + AGAIN} presses in a row ({case.name})"
    harness.judge.violate("not timed", text)
    raise NotTimedError(text)


@contextmanager
def _button(harness: SoakHarness, case: StopPressCase) -> Iterator[Callable[[bool], object]]:
    """What presses: the soak's own button, or a volatile publisher for the block."""
    if not case.volatile:
        yield harness.witness.press
        return
    with harness.publisher(VOLATILE_BUTTON) as publisher:
        yield lambda pressed: publisher.publish(Bool(data=pressed))
        harness.pause(KEEP_ALIVE_S)


def _press(harness: SoakHarness, case: StopPressCase) -> Times | None:
    """Once; None where it says nothing."""
    skipped, stalls = harness.witness.skipped, harness.witness.state.get("stalls")
    with case.around(harness), _button(harness, case) as press_button:
        at_ns = harness.now_ns()
        press_button(True)
        harness.pause(case.seconds)
        press_button(False)
        pressed_s = (harness.now_ns() - at_ns) / 1e9
    begin_ns = harness.now_ns() if case.frozen else at_ns
    stopped = harness.says("stopped")
    if case.frozen:  # ticks of that time were not missed unasked
        harness.planned_skips += harness.witness.skipped - skipped
    too_long = pressed_s > LONGEST[0] * case.seconds + LONGEST[1]
    if stopped and (too_long or harness.witness.state.get("stalls") != stalls):
        return None
    stopped_ns = harness.first_of("stopped", at_ns, None if stopped else 0.0)
    if stopped_ns is None:
        harness.judge.violate("not stopped", f"the emergency stop was pressed ({case.name})")
    return begin_ns, None if stopped_ns is None else max(begin_ns, stopped_ns)
