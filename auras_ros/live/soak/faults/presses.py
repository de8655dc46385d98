"""Short presses of the emergency stop, beside whatever may keep the actuator from hearing them.

Each must be latched: a command of state `stopped` goes out, though the release follows at once.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from auras_ros.live.soak.garbage import garbage_on_inputs
from auras_ros.live.soak.harness import SoakHarness, Times
from auras_ros.live.soak.topics import CHUNKS, Topic
from auras_ros.nodes.common.qos import LATCHED, RELIABLE
from auras_ros.ros import BACKEND, Node, qos_profile_services_default
from auras_ros.ros.msg import Float64MultiArray, JointState, MultiArrayDimension, String, message_type

PRESSED_S = (0.02, 0.1)
LONGEST = 2.0, 0.01  # so many times what was meant, and so many seconds more, is still that press
AGAIN = 3
# How long the process is stopped: less than its lease. At least so long before the press.
STOPPED_S, AROUND_S = 0.2, 0.05
GARBAGE_HZ, ASKED_HZ = 20.0, 100.0
DESCRIPTION_BYTES = 3_900_000
MANY_JOINTS, MANY_DIMENSIONS = 300_000, 200_000
ENTITIES = 40_000, 7_000  # refused by its size; among the largest that are kept
Around = Callable[[SoakHarness], AbstractContextManager[None]]


@dataclass(frozen=True)
class StopPressCase:
    """A press of so many seconds, while `around` lasts. frozen: the process does not run when it is pressed."""

    name: str
    seconds: float
    around: Around
    frozen: bool = False


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


def announcer(node: Node, entities: int) -> tuple[Any, list[Any]]:
    """Announces so many entities, as a participant of its own would that has them: where, and what. Our layer's."""
    from auras_ros.ros.dds.endpoint import Writer
    from auras_ros.ros.dds.messages import serialize

    gid = message_type("rmw_dds_common/msg/Gid")(data=uuid.uuid4().bytes)
    named = message_type("rmw_dds_common/msg/NodeEntitiesInfo")(
        node_namespace="/", node_name="many", reader_gid_seq=[gid] * entities, writer_gid_seq=[]
    )
    kind = "rmw_dds_common/msg/ParticipantEntitiesInfo"
    payload = serialize(message_type(kind)(gid=gid, node_entities_info_seq=[named]))
    return Writer(node.context.participant, "ros_discovery_info", kind, LATCHED), payload


def deaf_service_client(node: Node, service: str, request_type: str) -> tuple[Any, list[Any]]:
    """Asks a service and has no reader for the answers: where, and an empty request. Our layer's alone."""
    from auras_ros.ros.dds.endpoint import Writer

    identity = b"clientid=" + b".".join(b"%x" % octet for octet in uuid.uuid4().bytes) + b";"
    topic, profile = f"rq/{service}Request", qos_profile_services_default
    request = [b"\0\1\0\0" + bytes(16) + b"\0\0\0\0"]  # who asks, and no names
    return Writer(node.context.participant, topic, request_type, profile, identity), request


@contextmanager
def announcement(harness: SoakHarness) -> Iterator[None]:
    (some, few), (many, lots) = (announcer(harness.witness, entities) for entities in ENTITIES)
    with closing(some), closing(many):
        harness.until(lambda: some.matched_count() and many.matched_count())
        some.write(few)
        many.write(lots)
        yield


@contextmanager
def garbage(harness: SoakHarness) -> Iterator[None]:
    """On every input but the one that is pressed; before the press and while it lasts."""
    with garbage_on_inputs(harness) as say, harness.timer(1.0 / GARBAGE_HZ, say):
        harness.pause(3.0 / GARBAGE_HZ)
        yield


@contextmanager
def deaf_client(harness: SoakHarness) -> Iterator[None]:
    """Of a service that is asked all the time."""
    service = "actuator/get_parameters", "rcl_interfaces/srv/GetParameters_Request"
    client, request = deaf_service_client(harness.witness, *service)
    with closing(client), harness.timer(1.0 / ASKED_HZ, lambda: client.write(request)):
        harness.until(client.matched_count)
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
    if BACKEND == "dds":
        beside |= {"deaf client": deaf_client, "announcement": announcement}
    beside["process stopped"] = process_stopped
    made = [
        StopPressCase(f"{name}, {seconds * 1e3:g} ms", seconds, around, frozen=around is process_stopped)
        for (name, around), seconds in itertools.product(beside.items(), PRESSED_S)
    ]
    return [*made, StopPressCase("back to back", 0.0, idle)]


def stop_pressed(harness: SoakHarness) -> Times:
    """One of the cases."""
    return press(harness, harness.draw("stop_pressed", cases()))


def press(harness: SoakHarness, case: StopPressCase) -> Times:
    """From the press, or from when the process goes on, to the first command that is stopped.

    Where that cannot be timed it is pressed again, at most three times, and counted: an actuator that stood still for
    longer than its lease was disarmed, it is stopped and sends nothing; and where this process stood still, the press
    was longer than it should have been. A press that is lost is lost, whatever else there was."""
    for _ in range(1 + AGAIN):
        times = _press(harness, case)
        if times is not None:
            return times
        harness.presses_again += 1
        harness.drive()
    harness.judge.violate("not timed", f"{1 + AGAIN} presses in a row ({case.name})")
    return 0, None


def _press(harness: SoakHarness, case: StopPressCase) -> Times | None:
    """Once; None where it says nothing."""
    skipped, stalls = harness.witness.skipped, harness.witness.state.get("stalls")
    with case.around(harness):
        at_ns = harness.now_ns()
        harness.witness.press(True)
        harness.pause(case.seconds)
        harness.witness.press(False)
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
