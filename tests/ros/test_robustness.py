"""Foreign, short or wrongly encoded payloads on any topic do no harm; a sentinel still arrives after them."""

from __future__ import annotations

import ctypes as ct
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds import library as dds
from auras_ros.ros.dds import service as service_module
from auras_ros.ros.dds.endpoint import Reader, Writer
from auras_ros.ros.dds.graph import _WRITER_QOS
from auras_ros.ros.dds.messages import serialize_bytes
from auras_ros.ros.dds.qos import qos_profile_services_default
from auras_ros.ros.dds.service import Service, _announced
from auras_ros.ros.msg import Image, JointState, ParameterMsg, String
from auras_ros.ros.srv import SetBool, SetParameters

SpinUntil = Callable[[Callable[[], Any]], None]
GARBAGE = [
    b"\0\1\0\0\1\0\0\0",
    b"\0\1\0\0" + b"\xff" * 64,
    b"\0\1\0\0" + bytes(8) + b"\xff\xff\xff\x7f" + bytes(32),
    b"\0\1\0\0" + bytes(range(256)),
]


@pytest.fixture
def raw(context: ros.Context, domain: int) -> Any:
    """A writer of another participant that sends any bytes under a ROS topic and type."""
    other = ros.Context()
    ros.init(args=[], context=other, domain_id=domain)

    def make(topic: str, ros_type: str, profile: Any, user_data: bytes = b"") -> Writer:
        return Writer(other.participant, topic, ros_type, profile, user_data)

    yield make
    ros.try_shutdown(context=other)


@pytest.mark.parametrize(("which", "said"), [("-S", "lives"), ("", "open files: at most 8 are allowed here")])
def test_too_few_descriptors_are_raised_or_said_by_whoever_makes_a_participant(
    domain: int, which: str, said: str
) -> None:
    """Guards against a middleware that ends `auras run` and `auras doctor` from below; the nodes look by themselves."""
    code = "from auras_ros.ros import *; init(args=[]); Node('few').destroy_node(); print('lives')"
    environment = os.environ | {"ROS_DOMAIN_ID": str(domain), "ROS_LOCALHOST_ONLY": "1"}
    command = ["bash", "-c", f'ulimit {which} -n 8; exec "$0" -c "$1"', sys.executable, code]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert said in ran.stdout + ran.stderr, (ran.returncode, ran.stderr)
    assert ran.returncode == (0 if which else 1)


@pytest.mark.parametrize("kind", [String, Image, JointState])
def test_garbage_on_a_topic(node: ros.Node, spin_until: SpinUntil, raw: Any, kind: Any, capfd: Any) -> None:
    got: list[Any] = []
    subscription = node.create_subscription(kind, "victim", got.append, 100)
    writer = raw("rt/test/victim", kind._ros_type, ros.QoSProfile(depth=100))
    spin_until(lambda: writer.matched_count() == 1)
    for garbage in GARBAGE:
        writer.write([garbage])
    writer.write([serialize_bytes(kind())])
    spin_until(lambda: got)
    assert got == [kind()]
    assert subscription.ignored_count == len(GARBAGE)
    assert capfd.readouterr().err.count("ignored a payload") == 1  # throttled


def test_garbage_on_the_service_topics(node: ros.Node, executor: Any, spin_until: SpinUntil, raw: Any) -> None:
    """Fast DDS sends requests without the 16 bytes; one must not end the spin loop."""
    calls: list[bool] = []

    def answer(request: Any, response: Any) -> Any:
        calls.append(request.data)
        return response

    service = node.create_service(SetBool, "set", answer)
    client = node.create_client(SetBool, "set")
    requests = raw("rq/test/setRequest", SetBool.Request._ros_type, qos_profile_services_default)
    replies = raw("rr/test/setReply", SetBool.Response._ros_type, qos_profile_services_default)
    spin_until(lambda: requests.matched_count() == 1 and replies.matched_count() == 1)
    short = b"\0\1\0\0\1\0\0\0"
    for writer in (requests, replies):
        writer.write([short])
    requests.write([b"\0\1\0\0" + b"\xff" * 16 + b"\1\2\3\4\5\6\7\x08"])
    spin_until(lambda: service.ignored_count == 2 and client.ignored_count == 1)
    future = client.call_async(SetBool.Request(data=True))
    executor.spin_until_future_complete(future, timeout_sec=20)
    assert future.result() is not None
    assert calls == [True]


@pytest.fixture
def asks(raw: Any) -> Callable[[], tuple[Writer, bytes]]:
    """A client in pieces: a writer of requests, and the user data that would tell its reader of answers."""

    def make() -> tuple[Writer, bytes]:
        identity = _announced("clientid")
        writer = raw("rq/test/setRequest", SetBool.Request._ros_type, qos_profile_services_default, identity)
        return writer, identity

    return make


def test_an_answer_waits_for_its_clients_reader_and_nobody_waits_with_it(
    node: ros.Node, spin_until: SpinUntil, raw: Any, asks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written at once it would be lost, as discovery is not symmetric; waited for, the executor would stand still."""
    took_s: list[float] = []
    execute = Service.execute

    def timed(self: Service) -> None:
        begin_s = time.monotonic()
        execute(self)
        took_s.append(time.monotonic() - begin_s)

    monkeypatch.setattr(Service, "execute", timed)
    monkeypatch.setattr(service_module, "_REPLY_PATIENCE_S", 60.0)
    node.create_service(SetBool, "set", lambda request, response: response)
    requests, identity = asks()
    spin_until(lambda: requests.matched_count() == 1)
    for _ in range(5):
        requests.write([b"\0\1\0\0" + bytes(16) + b"\1\0\0\0"])
    spin_until(lambda: len(took_s) >= 5)
    assert min(took_s) < 0.02, took_s
    topic, kind = "rr/test/setReply", SetBool.Response._ros_type
    answers = Reader(requests.participant, topic, kind, qos_profile_services_default, identity)
    got: list[Any] = []
    spin_until(lambda: got.extend(filter(None, [answers.take()])) or len(got) == 5)


def test_answers_wait_for_a_reader_that_acknowledges_none_and_no_write_waits(node: ros.Node) -> None:
    """libddsc makes a writer wait whose unread answers are many bytes; the queue of requests may be deep all the
    same."""
    service = node.create_service(SetBool, "set", lambda *_: None, qos_profile=ros.QoSProfile(depth=1000))
    assert (_depth(service.reader.ref), _depth(service.writer.ref)) == (1000, qos_profile_services_default.depth)


def _depth(endpoint: int) -> int:
    get_qos = dds.declare(dds._LIBRARY, "dds_get_qos", ct.c_int32, ct.c_int32, ct.c_void_p)
    argtypes = (ct.c_void_p, ct.POINTER(ct.c_int), ct.POINTER(ct.c_int32))
    get_history = dds.declare(dds._LIBRARY, "dds_qget_history", ct.c_bool, *argtypes)
    kind, depth, handle = ct.c_int(), ct.c_int32(), dds.create_qos()
    try:
        dds.check(get_qos(endpoint, handle), "its QoS")
        get_history(handle, ct.byref(kind), ct.byref(depth))
    finally:
        dds.delete_qos(handle)
    return depth.value


def test_a_request_larger_than_anybody_needs_is_not_read(node: ros.Node, executor: Any, spin_until: SpinUntil) -> None:
    """Reading it would keep the interpreter from the other threads: from that of the emergency stop among them."""
    asked: list[int] = []

    def answer(request: Any, response: Any) -> Any:
        asked.append(len(request.parameters))
        return response

    service = node.create_service(SetParameters, "set", answer)
    client = node.create_client(SetParameters, "set")
    spin_until(client.service_is_ready)
    client.call_async(SetParameters.Request(parameters=[ParameterMsg(name="x" * 64)] * 4000))
    spin_until(lambda: service.ignored_count == 1 or asked)
    future = client.call_async(SetParameters.Request(parameters=[ParameterMsg(name="x" * 64)]))
    executor.spin_until_future_complete(future, timeout_sec=20)
    assert future.result() is not None
    assert asked == [1]


def test_a_reply_that_nobody_asked_for_is_passed_over(
    node: ros.Node, executor: Any, spin_until: SpinUntil, raw: Any
) -> None:
    """Replies of other clients, and late ones, arrive on the same topic; they take no one else's place."""
    node.create_service(SetBool, "set", lambda request, response: SetBool.Response(success=True, message="right"))
    client = node.create_client(SetBool, "set")
    replies = raw("rr/test/setReply", SetBool.Response._ros_type, qos_profile_services_default)
    spin_until(lambda: replies.matched_count() == 1 and client.service_is_ready())
    body = serialize_bytes(SetBool.Response(message="wrong"))[4:]
    mine = client._id.to_bytes(8, "little")
    for client_id, sequence in ((b"\xff" * 8, 1), (mine, 99), (mine, 2**63 - 1), (bytes(8), 1)):
        replies.write([b"\0\1\0\0" + client_id + sequence.to_bytes(8, "little") + body])
    future = client.call_async(SetBool.Request(data=True))
    executor.spin_until_future_complete(future, timeout_sec=20)
    assert future.result().message == "right"


def test_a_handle_beyond_31_bits_is_carried(node: ros.Node) -> None:
    """Instance handles are unsigned 64 bits; read as signed they overflowed."""
    client = node.create_client(SetBool, "set")
    assert 0 < client._id < 2**64
    client._id = 2**64 - 1
    client.call_async(SetBool.Request())


def test_garbage_in_the_graph(node: ros.Node, context: ros.Context, spin_until: SpinUntil, raw: Any) -> None:
    writer = raw("ros_discovery_info", "rmw_dds_common/msg/ParticipantEntitiesInfo", _WRITER_QOS)
    spin_until(lambda: writer.matched_count() == 1)
    writer.write([GARBAGE[1]])
    spin_until(lambda: context.graph.ignored_count >= 1)
    assert ("tester", "/test") in node.get_node_names_and_namespaces()


def test_an_empty_payload_is_not_sent(raw: Any) -> None:
    writer = raw("rt/test/empty", String._ros_type, ros.QoSProfile(depth=1))
    for payload in (b"", b"\0\1\0\0"):
        with pytest.raises(RuntimeError, match="holds no data"):
            writer.write([payload])


def test_a_service_callback_must_return_a_response(node: ros.Node, executor: Any) -> None:
    node.create_service(SetBool, "set", lambda request, response: None)
    client = node.create_client(SetBool, "set")
    assert client.wait_for_service(timeout_sec=20)
    future = client.call_async(SetBool.Request())
    with pytest.raises(TypeError, match="/test/set"):
        executor.spin_until_future_complete(future, timeout_sec=20)
