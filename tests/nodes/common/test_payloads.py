"""Payloads that anybody may publish are read within their own length: what lies about it is refused, on either layer.

Guards: a message that rclpy makes of half a payload; memory for a sequence that is not there; a copy of the pixels.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.ros.bounded import PayloadLimits, bounded, bounded_with_info, read_message, text_limits
from auras_ros.ros.cdr_reader import PayloadError
from auras_ros.ros.image import compressed_message, image_message, stamp_ns
from auras_ros.ros.msg import (
    Bool,
    Float64MultiArray,
    Header,
    Image,
    JointState,
    MultiArrayDimension,
    MultiArrayLayout,
    String,
    TimeMsg,
)
from auras_ros.ros.received_image import read_compressed, read_image
from tests.nodes.payloads import HEADER, serialized

STAMP_NS = 1_234_567_890_123
MANY = 2**30
PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
IMAGE = serialized(image_message(PIXELS, stamp_ns=STAMP_NS, frame_id="camera", encoding="rgb8"))
FILE = serialized(compressed_message(b"\xff\xd8 a file", format="jpeg", stamp_ns=STAMP_NS, frame_id="camera"))
DIMENSIONS = [MultiArrayDimension(label=label, size=2, stride=2) for label in ("horizon", "x,y")]
MESSAGES: list[Any] = [
    Bool(data=True),
    String(data="push the T"),
    JointState(header=Header(stamp=TimeMsg(sec=1, nanosec=2), frame_id="table"), name=["a", "bc"], position=[1.0, 2.0]),
    Float64MultiArray(layout=MultiArrayLayout(dim=DIMENSIONS, data_offset=1), data=[1.0, 2.0, 3.0, 4.0]),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_and_what_is_cut_off_it_is_refused(message: Any) -> None:
    payload = serialized(message)
    assert serialized(read_message(payload, type(message))) == payload
    for size in range(max(5, len(payload) - 12)):  # rclpy leaves up to 8 bytes at the end
        with pytest.raises(PayloadError):
            read_message(payload[:size], type(message))


LIARS = {
    "text": (String, struct.pack("<I", MANY) + bytes(64)),
    "dimensions": (Float64MultiArray, struct.pack("<I", MANY) + bytes(64)),
    "values": (Float64MultiArray, struct.pack("<III", 0, 0, MANY) + bytes(64)),
    "names": (JointState, struct.pack("<iII", 1, 2, 1) + bytes(4) + struct.pack("<I", MANY) + bytes(64)),
    "positions": (JointState, struct.pack("<iII", 1, 2, 1) + bytes(4) + struct.pack("<II", 0, MANY) + bytes(64)),
}


@pytest.mark.parametrize("what", LIARS)
def test_a_payload_that_says_more_than_it_has_is_refused_and_prints_nothing(
    what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, data = LIARS[what]
    with pytest.raises(PayloadError):
        read_message(HEADER + data, kind)
    assert capfd.readouterr() == ("", "")


@given(st.binary(max_size=200), st.sampled_from([String, JointState, Float64MultiArray, Bool, Image]))
def test_no_bytes_raise_anything_else(data: bytes, kind: Any) -> None:
    for payload in (data, HEADER + data):
        for read in (lambda payload: read_message(payload, kind), read_image, read_compressed):
            with contextlib.suppress(PayloadError):
                read(payload)


def test_an_image_is_read_without_a_copy_of_its_pixels() -> None:
    image = read_image(IMAGE)
    assert (image.height, image.width, image.encoding, image.step) == (4, 6, "rgb8", 18)
    assert (stamp_ns(image), image.header.frame_id, image.is_bigendian) == (STAMP_NS, "camera", 0)
    np.testing.assert_array_equal(np.frombuffer(image.data, np.uint8).reshape(4, 6, 3), PIXELS)
    assert image.data.obj is IMAGE


def test_an_encoded_image_is_read_without_a_copy() -> None:
    file = read_compressed(FILE)
    assert (bytes(file.data), file.format, stamp_ns(file)) == (b"\xff\xd8 a file", "jpeg", STAMP_NS)
    assert file.data.obj is FILE


def test_an_image_in_the_other_byte_order_is_read_too() -> None:
    fields = struct.pack(">iII", 1, 2, 4) + b"cam\0" + struct.pack(">III", 1, 2, 6) + b"mono8\0" + b"\0\0"
    fields += struct.pack(">II", 2, 2) + b"\7\x08"
    image = read_image(b"\0\0\0\0" + fields)
    assert (image.height, image.width, image.encoding, image.step, bytes(image.data)) == (1, 2, "mono8", 2, b"\7\x08")


@pytest.mark.parametrize("read", [read_image, read_compressed])
def test_an_image_that_is_cut_off_is_refused(read: Any) -> None:
    payload = IMAGE if read is read_image else FILE
    data_bytes = PIXELS.nbytes if read is read_image else len(b"\xff\xd8 a file")
    whole = payload[: len(payload) - (-data_bytes % 4 if len(payload) % 4 == 0 else 0)]
    read(whole)
    for size in range(len(whole)):
        with pytest.raises(PayloadError):
            read(whole[:size])


def test_a_name_of_a_megabyte_is_no_name() -> None:
    message = image_message(PIXELS, stamp_ns=STAMP_NS, frame_id="x" * 1_000_000, encoding="rgb8")
    with pytest.raises(PayloadError, match="a text of 1000000 bytes, at most 1024"):
        read_image(serialized(message))


def test_what_is_beyond_the_limits_is_never_read() -> None:
    read, refused, taken = list[bytes](), list[str](), list[Any]()
    take = bounded(
        "/chunk",
        lambda payload: read.append(bytes(payload)) or len(payload),
        taken.append,
        PayloadLimits(max_bytes=20, max_first=2),
        lambda error: refused.append(str(error)),
    )
    good = HEADER + struct.pack("<I", 2) + bytes(8)
    take(HEADER + bytes(17))
    take(HEADER + struct.pack("<I", 3) + bytes(8))
    take(good)
    assert (read, taken) == ([good], [len(good)])
    assert refused == [
        "21 bytes on /chunk: at most 20",
        "16 bytes on /chunk: 3 elements at its beginning, at most 2",
    ]


def test_what_the_middleware_says_of_a_message_comes_with_it() -> None:
    refused, taken = list[str](), list[tuple[bytes, Any]]()
    take = bounded_with_info(
        "/joint_states",
        bytes,
        lambda message, info: taken.append((message, info)),
        PayloadLimits(max_bytes=4),
        lambda error: refused.append(str(error)),
    )
    info = {"publisher_gid": b"driver"}
    take(b"four", info)
    take(b"five!", info)
    assert taken == [(b"four", info)]
    assert refused == ["5 bytes on /joint_states: at most 4"]


@given(st.text(max_size=50))
def test_a_text_of_so_many_bytes_is_within_its_limits(text: str) -> None:
    text = text.replace("\0", "")
    size = len(text.encode("utf-8", "surrogatepass"))
    if "\ud800" <= max(text, default="") <= "\udfff":
        return
    assert not text_limits(size).exceeded(serialized(String(data=text)))
    assert text_limits(size).exceeded(bytes(size + 13))
