"""Nothing that anybody may send keeps the interpreter from the emergency stop's thread for longer than 10 ms.

Python takes turns between its own instructions; one call into C, on bytes from outside, is one turn. Each input is read
here as its node reads it, as large as its bounds let it be, beside a thread that wants a turn all the time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from auras_ros.action import Contract
from auras_ros.action.wire import MAX_HORIZON, MAX_JSON_CHARS
from auras_ros.nodes.actuator.position import PositionMonitor
from auras_ros.nodes.common.messages import STATE_LIMITS, read_chunk
from auras_ros.nodes.common.texts import MAX_TEXT, read_json
from auras_ros.ros import BACKEND, deserialize_message
from auras_ros.ros.msg import Float64MultiArray, JointState, MultiArrayDimension

KEPT_MS = 10.0
ROUNDS = 40  # at most, until one is short enough: the machine may be busy with something else between two turns

pytestmark = pytest.mark.skipif(BACKEND != "dds", reason="rclpy reads a message in one call, of any size")


@pytest.fixture
def keeps() -> Iterator[Callable[[Callable[[], Any]], bool]]:
    """keeps(read): whether the other thread waits for its turn for longer than KEPT_MS, whenever read() runs."""
    turns, over = list[float](), threading.Event()

    def take_turns() -> None:
        while not over.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.0001)

    def waited_ms(read: Callable[[], Any]) -> float:
        turns.clear()
        began_s = time.perf_counter()
        read()
        at = [began_s, *(turn for turn in list(turns) if turn > began_s), time.perf_counter()]
        return max(later - earlier for earlier, later in pairwise(at)) * 1e3

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # what is asked is how long one call takes, not for how long Python lets it go on
    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield lambda read: all(waited_ms(read) > KEPT_MS for _ in range(ROUNDS))
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval_s)


def chunk(header: str, contract: Contract) -> bytes:
    from auras_ros.ros.dds.messages import serialize

    names = ",".join(contract.names)
    dimensions = [("horizon", MAX_HORIZON), (names, len(contract.channels)), (header, 1)]
    message = Float64MultiArray(data=np.zeros(MAX_HORIZON * len(contract.channels)))
    message.layout.dim = [MultiArrayDimension(label=label, size=size) for label, size in dimensions]
    return b"".join(serialize(message))


JSON = {
    "many keys": json.dumps({f"{number:x}": 0 for number in range(6_000)}),
    "many lists": '{"a": [' + ",".join(["[]"] * 20_000) + "]}",
    "many escapes": '{"a": "' + "\\u00e9" * 10_000 + '"}',
    "many digits": '{"a": ' + "9" * 60_000 + "}",
    "deep": '{"a":' * 10_000 + "0" + "}" * 10_000,
}


@pytest.mark.parametrize("text", JSON.values(), ids=JSON)
def test_text_of_a_chunk_or_a_heartbeat(text: str, contract: Contract, keeps: Callable[..., bool]) -> None:
    assert 50_000 < len(text) <= min(MAX_TEXT, MAX_JSON_CHARS)
    payload = chunk(text, contract)

    def read_as_chunk() -> None:
        with suppress(ValueError):
            read_chunk(deserialize_message(payload, Float64MultiArray), contract)

    def read_as_beat() -> None:
        with suppress(ValueError):
            read_json(text, "heartbeat")

    assert not keeps(read_as_chunk)
    assert not keeps(read_as_beat)


def test_joint_states(contract: Contract, keeps: Callable[..., bool]) -> None:
    from auras_ros.ros.dds.messages import serialize

    names = [f"{number:x}" for number in range(STATE_LIMITS.max_bytes // 18)]
    payload = b"".join(serialize(JointState(name=names, position=[0.0] * len(names))))
    assert 0.7 * STATE_LIMITS.max_bytes < len(payload) <= STATE_LIMITS.max_bytes
    place = PositionMonitor(contract, 0.1)

    def read() -> None:
        message = deserialize_message(payload, JointState)
        place.take(message.name, np.asarray(message.position, dtype=np.float64), 0)

    assert not keeps(read)


def test_a_request_for_parameters_and_an_announcement(keeps: Callable[..., bool]) -> None:
    from auras_ros.ros.dds import announced
    from auras_ros.ros.dds.messages import message_type, serialize
    from auras_ros.ros.dds.service import _MAX_REQUEST_BYTES

    request = message_type("rcl_interfaces/srv/GetParameters_Request")
    payload = b"".join(serialize(request(names=["x" * 7] * (_MAX_REQUEST_BYTES // 12 - 10))))
    assert 0.9 * _MAX_REQUEST_BYTES < len(payload) <= _MAX_REQUEST_BYTES
    assert not keeps(lambda: deserialize_message(payload, request))

    gid = message_type("rmw_dds_common/msg/Gid")(data=bytes(16))
    node = message_type("rmw_dds_common/msg/NodeEntitiesInfo")(
        node_namespace="/", node_name="n", reader_gid_seq=[gid] * 8_000, writer_gid_seq=[]
    )
    said = b"".join(serialize(message_type(announced.INFO)(gid=gid, node_entities_info_seq=[node])))
    assert 0.9 * announced.MAX_BYTES < len(said) <= announced.MAX_BYTES
    assert not keeps(lambda: announced.read(said))


def test_a_call_that_keeps_it_is_seen(keeps: Callable[..., bool]) -> None:
    """The measure itself."""
    text = "[" + ",".join(["1"] * 1_000_000) + "]"
    assert keeps(lambda: json.loads(text))
