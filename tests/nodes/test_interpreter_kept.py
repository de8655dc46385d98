"""Nothing that anybody may send keeps the interpreter from the emergency stop's thread for longer than 10 ms.

Python takes turns between its own instructions; one call into C, on bytes from outside, is one turn. Each input is read
here as its node reads it, as large as its bounds let it be, beside a thread that wants a turn all the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from auras_ros.action import Contract
from auras_ros.action.wire import MAX_HORIZON, MAX_JSON_CHARS
from auras_ros.nodes.actuator.position import PositionMonitor
from auras_ros.nodes.common.messages import STATE_LIMITS, read_chunk
from auras_ros.nodes.common.texts import MAX_TEXT, read_json
from auras_ros.ros import deserialize_message
from auras_ros.ros.msg import Float64MultiArray, JointState, MultiArrayDimension
from tests.nodes.interpreter import keeps
from tests.nodes.payloads import serialized

__all__ = ["keeps"]


def chunk(header: str, contract: Contract) -> bytes:
    names = ",".join(contract.names)
    dimensions = [("horizon", MAX_HORIZON), (names, len(contract.channels)), (header, 1)]
    message = Float64MultiArray(data=np.zeros(MAX_HORIZON * len(contract.channels)))
    message.layout.dim = [MultiArrayDimension(label=label, size=size) for label, size in dimensions]
    return serialized(message)


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
    names = [f"{number:x}" for number in range(STATE_LIMITS.max_bytes // 18)]
    payload = serialized(JointState(name=names, position=[0.0] * len(names)))
    assert 0.7 * STATE_LIMITS.max_bytes < len(payload) <= STATE_LIMITS.max_bytes
    place = PositionMonitor(contract, 0.1)

    def read() -> None:
        message = deserialize_message(payload, JointState)
        place.take(message.name, np.asarray(message.position, dtype=np.float64), 0)

    assert not keeps(read)


def test_a_call_that_keeps_it_is_seen(keeps: Callable[..., bool]) -> None:
    """The measure itself."""
    text = "[" + ",".join(["1"] * 1_000_000) + "]"
    assert keeps(lambda: json.loads(text))
