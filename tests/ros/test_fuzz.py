"""Noise, mutated messages and foreign types on every topic and service of a node in another process.

The node must still be there, have counted what it could not read, and answer what comes after the noise.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros import msg
from auras_ros.ros.dds import names, srvtypes
from auras_ros.ros.dds.cdr import CdrError
from auras_ros.ros.dds.endpoint import Writer
from auras_ros.ros.dds.messages import deserialize, message_type, serialize_bytes
from auras_ros.ros.dds.qos import qos_profile_parameters, qos_profile_services_default
from auras_ros.ros.msg import Header, JointState, KeyValue, String
from auras_ros.ros.srv import GetParameters, GetState, SetBool, Trigger

SpinUntil = Callable[[Callable[[], Any]], None]
HEADER = b"\0\1\0\0"
ROUNDS = 40
KINDS = ("Bool", "CompressedImage", "DiagnosticArray", "Float64MultiArray", "Image", "JointState", "JointTrajectory",
         "ParameterEvent", "String", "TwistStamped")  # fmt: skip
SERVICES = {
    "set": "SetBool", "change_state": "ChangeState", "get_state": "GetState",
    "get_available_states": "GetAvailableStates", "get_available_transitions": "GetAvailableTransitions",
    "get_transition_graph": "GetAvailableTransitions", "describe_parameters": "DescribeParameters",
    "get_parameters": "GetParameters", "get_parameter_types": "GetParameterTypes",
    "list_parameters": "ListParameters", "set_parameters": "SetParameters",
    "set_parameters_atomically": "SetParametersAtomically",
}  # fmt: skip


def filled(kind: Any) -> Any:
    """A message with something in its strings and sequences, so that mutations hit lengths and text."""
    message = kind()
    for field in kind._fields:
        if field.nested and field.kind == "sequence":
            setattr(message, field.name, [filled(message_type(field.base)) for _ in range(2)])
        elif field.nested and field.kind == "one":
            setattr(message, field.name, filled(message_type(field.base)))
        elif field.base == "string":
            setattr(message, field.name, "tëxt" if field.kind == "one" else ["a", "bc"])
        elif field.kind == "sequence" and field.numeric and field.base != "bool":
            setattr(message, field.name, [1, 2, 3])
    return message


def noise(rng: random.Random, valid: bytes) -> Iterator[bytes]:
    """Payloads after the four bytes of encapsulation: short, random, cut off, bits flipped, lengths blown up.

    The encapsulation itself stays: libddsc refuses to carry another one, and calls big endian little (a big-endian
    peer would be misread).
    """
    for size in (1, 7, 64):
        yield HEADER + rng.randbytes(size)
    yield HEADER + b"\xff" * 100_000
    for _ in range(ROUNDS):
        cut = valid[: rng.randrange(5, len(valid) + 1)]
        yield cut
        mutated = bytearray(valid)
        for _ in range(rng.randrange(1, 8)):
            mutated[rng.randrange(4, len(mutated))] = rng.randrange(256)
        yield bytes(mutated)
        at = rng.randrange(4, len(valid)) & ~3
        yield valid[:at] + rng.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80")) + valid[at + 4 :]


def unreadable(payload: bytes, ros_type: str) -> bool:
    try:
        deserialize(payload + bytes(-len(payload) % 4), ros_type)  # padded, as it is sent
    except CdrError:
        return True
    return False


@pytest.fixture
def writer(domain: int, spin_until: SpinUntil) -> Iterator[Callable[..., Writer]]:
    """A raw writer of a third participant, matched with the victim."""
    other = ros.Context()
    ros.init(args=[], context=other, domain_id=domain)

    def make(topic: str, ros_type: str, profile: Any, *, matched: bool = True) -> Writer:
        made = Writer(other.participant, topic, ros_type, profile)
        if matched:
            spin_until(lambda: made.matched_count() >= 1)
        return made

    yield make
    ros.try_shutdown(context=other)


@pytest.fixture
def report(call: Any) -> Callable[[], dict[str, Any]]:
    return lambda: dict(json.loads(call(Trigger, "/test/victim/report").message))


def test_noise_on_every_topic(spawn: Any, writer: Any, report: Any, spin_until: SpinUntil) -> None:
    child = spawn("victim")
    rng = random.Random(4)
    profile = ros.QoSProfile(depth=1000)
    sent = {}
    for name in KINDS:
        kind = getattr(msg, name)
        out = writer(f"rt/test/victim/{name}", kind._ros_type, profile)
        valid = serialize_bytes(filled(kind))
        payloads = [*noise(rng, valid), valid]
        for payload in payloads:
            out.write([payload])
        sent[name] = len(payloads)

    def all_seen() -> bool:
        seen = report()
        return all(seen["received"].get(name, 0) + seen["ignored"][f"/test/victim/{name}"] == count
                   for name, count in sent.items())  # fmt: skip

    spin_until(all_seen)
    seen = report()
    for name in KINDS:
        assert seen["ignored"][f"/test/victim/{name}"] >= 3, name
        assert seen["received"][name] >= 1, name
    assert child.poll() is None


def test_noise_on_every_service(spawn: Any, writer: Any, report: Any, call: Any, spin_until: SpinUntil) -> None:
    """Requests that can be read are answered, whatever they ask for; the others are counted."""
    child = spawn("victim")
    rng = random.Random(5)
    for name, type_name in SERVICES.items():
        service = getattr(srvtypes, type_name)
        parameters = type_name.endswith(("Parameters", "ParameterTypes", "Atomically"))
        profile = qos_profile_parameters if parameters else qos_profile_services_default
        topic, _ = names.dds_service(f"/test/victim/{name}")
        out = writer(topic, service.Request._ros_type, ros.QoSProfile(depth=profile.depth))
        valid = serialize_bytes(filled(service.Request))
        for payload in noise(rng, valid):
            out.write([payload[:4] + rng.randbytes(16) + payload[4:]])
            out.write([payload])
            report()  # a service keeps ten requests: let it look at these

        def counted(name: str = name, out: Writer = out) -> bool:
            out.write([HEADER + b"\1\0\0\0"])  # as Fast DDS sends it: no room for the sixteen bytes
            return bool(report()["ignored"][f"/test/victim/{name}"] >= 10)

        spin_until(counted)
    assert call(SetBool, "/test/victim/set", data=True).success
    assert call(GetState, "/test/victim/get_state").current_state.id in (1, 2, 3, 4)
    assert len(call(GetParameters, "/test/victim/get_parameters", names=["use_sim_time"]).values) == 1
    assert child.poll() is None


def test_messages_of_other_types(spawn: Any, writer: Any, report: Any, spin_until: SpinUntil) -> None:
    """A writer that announces another type is not matched; one that lies about its type is counted."""
    spawn("victim")
    profile = ros.QoSProfile(depth=10)
    wrong = writer("rt/test/victim/String", "std_msgs/msg/Int64", profile, matched=False)
    liar = writer("rt/test/victim/String", "std_msgs/msg/String", profile)
    header = serialize_bytes(Header(frame_id="map"))
    foreign = [serialize_bytes(JointState(header=Header(frame_id="b"), name=["j"], position=[1.0])), header,
               serialize_bytes(KeyValue(key="a" * 50, value="b"))]  # fmt: skip
    for payload in foreign:
        liar.write([payload])
    liar.write([serialize_bytes(String(data="right"))])
    spin_until(lambda: report()["received"].get("String") == 1)
    assert report()["ignored"]["/test/victim/String"] == len(foreign)
    assert wrong.matched_count() == 0


def test_noise_on_the_clock(spawn: Any, writer: Any, report: Any, spin_until: SpinUntil) -> None:
    """A stamp that no later message could carry (before 1970, 4 billion ns) does not become the node's time."""
    spawn("victim")
    clock = writer("rt/clock", "rosgraph_msgs/msg/Clock", ros.QoSProfile(depth=10))
    time = msg.TimeMsg
    for stamp in (time(sec=-5), time(sec=2**31 - 1, nanosec=2**32 - 1), time(sec=5, nanosec=10**9)):
        clock.write([serialize_bytes(msg.ClockMsg(clock=stamp))])
        clock.write([HEADER + b"\xff\xff\xff"])

    # Best effort and depth 1 on the other side: one may replace another, so each kind is repeated until it is counted.
    def counted() -> bool:
        clock.write([serialize_bytes(msg.ClockMsg(clock=time(sec=-5)))])
        ignored = report()["ignored"]
        clock.write([HEADER + b"\xff\xff\xff"])
        return bool(ignored["clock"] and ignored["/clock"])

    spin_until(counted)
    assert report()["now_ns"] == 0

    def good() -> bool:
        clock.write([serialize_bytes(msg.ClockMsg(clock=time(sec=7, nanosec=1)))])
        return bool(report()["now_ns"] == 7_000_000_001)

    spin_until(good)


def test_ruined_replies(node: ros.Node, executor: Any, writer: Any) -> None:
    """Replies that carry a pending call's own identity and cannot be read: the call waits for one that can."""
    deep = ros.QoSProfile(depth=1000)
    kind = srvtypes.GetParameters.Response
    client = node.create_client(srvtypes.GetParameters, "lying", qos_profile=deep)
    out = writer("rr/test/lyingReply", kind._ros_type, deep)
    future = client.call_async(srvtypes.GetParameters.Request())
    mine = client._id.to_bytes(8, "little") + (1).to_bytes(8, "little")
    valid = serialize_bytes(filled(kind))
    ruined = [payload for payload in noise(random.Random(6), valid) if unreadable(payload, kind._ros_type)]
    assert len(ruined) > ROUNDS
    for payload in ruined:
        out.write([payload[:4] + mine + payload[4:]])
    out.write([valid[:4] + mine + valid[4:]])
    executor.spin_until_future_complete(future, timeout_sec=20)
    assert future.result() == filled(kind)
    assert client.ignored_count == len(ruined)
