"""CDR and type hashes against what rclpy itself produced, and against whatever a foreign peer may send."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.ros.dds import messages, vision_msgs
from auras_ros.ros.dds.cdr import CdrError
from auras_ros.ros.dds.typehash import type_hash

GOLDEN = json.loads((Path(__file__).parents[1] / "data/ros2_jazzy_wire.json").read_text())["types"]
CASES = [(name, index) for name, entry in GOLDEN.items() for index in range(len(entry["samples"]))]


def build(ros_type: str, values: dict[str, Any]) -> Any:
    """A message from the file's plain values; a byte is a one-character string there."""
    kind = messages.message_type(ros_type)
    message = kind()
    for field in kind._fields:
        one = (lambda v, base=field.base: build(base, v)) if field.nested else (
            (lambda v: v.encode("latin-1")) if field.base == "byte" else (lambda v: v))  # fmt: skip
        value = values[field.name]
        if field.kind != "one" and field.length and len(value) > field.length:
            getattr(message, field.name).extend(map(one, value))  # rclpy had sent more than the bound
        else:
            setattr(message, field.name, one(value) if field.kind == "one" else [one(item) for item in value])
    return message


def test_the_golden_file_is_whole() -> None:
    assert len(GOLDEN) == 27
    assert len(CASES) == 81


@pytest.mark.parametrize(("ros_type", "index"), CASES)
def test_values_and_cdr_equal_those_of_rclpy(ros_type: str, index: int) -> None:
    sample = GOLDEN[ros_type]["samples"][index]
    message = build(ros_type, sample["values"])
    assert messages.serialize_bytes(message).hex() == sample["cdr"]
    assert messages.deserialize(bytes.fromhex(sample["cdr"]), ros_type) == message
    if index == 0:
        assert messages.message_type(ros_type)() == message


@pytest.mark.parametrize("ros_type", GOLDEN)
def test_type_hash_equals_that_of_rclpy(ros_type: str) -> None:
    assert type_hash(ros_type) == GOLDEN[ros_type]["type_hash"]


def test_hashes_differ_from_rosbags_where_char_occurs() -> None:
    """Guards the char rule: rosbags' own hash of the graph message is not the one ROS announces."""
    kind = "rmw_dds_common/msg/ParticipantEntitiesInfo"
    assert messages.STORE.hash_rihs01(kind) != type_hash(kind) == GOLDEN[kind]["type_hash"]


VISION = {  # as the generated C sources of vision_msgs 4 have them, which name the types below them too
    "BoundingBox2D": "008eacbb0cf8f26e83795547bed013eec3675485ef386ec056d80eaaf1c1ce2f",
    "Detection2D": "0d12b69df5c593b3455b7346fac8205437a7d4bcb09b9e0e0b2dde787ded38ea",
    "Detection2DArray": "214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
    "ObjectHypothesis": "51da43cec11c01957a64d1e05a24acd18aae7745ec30b74348ad5f6d634f7f90",
}


@pytest.mark.parametrize("name", VISION)
def test_vision_msgs_are_those_of_ros(name: str) -> None:
    """Their definitions are ours: a field more or less is another type."""
    assert type_hash(f"vision_msgs/msg/{name}") == f"RIHS01_{VISION[name]}"


def test_detections_are_read_by_another_reader() -> None:
    made = {name.rpartition("/")[2]: messages.message_type(name) for name in vision_msgs.DEFINITIONS}
    hypothesis = made["ObjectHypothesis"](class_id="tee", score=0.75)
    box = made["BoundingBox2D"](center=made["Pose2D"](position=made["Point2D"](x=1.5, y=2.5), theta=0.5), size_x=3.0)
    one = made["Detection2D"](results=[made["ObjectHypothesisWithPose"](hypothesis=hypothesis)], bbox=box, id="7")
    payload = messages.serialize_bytes(made["Detection2DArray"](detections=[one, one]))
    theirs: Any = messages.STORE.deserialize_cdr(payload, "vision_msgs/msg/Detection2DArray")
    assert len(theirs.detections) == 2
    read = theirs.detections[1]
    assert (read.results[0].hypothesis.class_id, read.results[0].hypothesis.score, read.id) == ("tee", 0.75, "7")
    assert (read.results[0].pose.pose.orientation.w, len(read.results[0].pose.covariance)) == (1.0, 36)
    centre = read.bbox.center
    assert (centre.position.x, centre.position.y, centre.theta, read.bbox.size_x) == (1.5, 2.5, 0.5, 3.0)


@pytest.mark.parametrize("ros_type", sorted(messages.STORE.fielddefs))
def test_default_cdr_of_every_type_is_read_back(ros_type: str) -> None:
    message = messages.message_type(ros_type)()
    assert messages.deserialize(messages.serialize_bytes(message), ros_type) == message


@pytest.mark.parametrize("ros_type", GOLDEN)
def test_every_truncation_is_refused_or_padding(ros_type: str) -> None:
    """A short payload must be a CdrError: never another exception, never a half-read message."""
    payload = bytes.fromhex(GOLDEN[ros_type]["samples"][1]["cdr"])
    whole = messages.deserialize(payload, ros_type)
    for length in range(len(payload)):
        try:
            message = messages.deserialize(payload[:length], ros_type)
        except CdrError:
            continue
        assert message == whole


@given(st.sampled_from(sorted(GOLDEN)), st.binary(max_size=200))
def test_noise_is_a_message_or_a_cdr_error(ros_type: str, noise: bytes) -> None:
    with contextlib.suppress(CdrError):
        messages.deserialize(b"\0\1\0\0" + noise, ros_type)


def test_a_sequence_that_claims_4_billion_items_costs_nothing() -> None:
    for ros_type in ("diagnostic_msgs/msg/DiagnosticArray", "sensor_msgs/msg/JointState"):
        header = messages.serialize_bytes(messages.message_type(ros_type)())[:4] + bytes(8) + b"\1\0\0\0\0\0\0\0"
        with pytest.raises(CdrError, match="left"):
            messages.deserialize(header + b"\xff\xff\xff\xff" + bytes(16), ros_type)


@pytest.mark.parametrize("kind", [b"\0\2", b"\0\3", b"\0\7", b"\0\x0b", b"\1\0"])
def test_another_encapsulation_is_refused(kind: bytes) -> None:
    with pytest.raises(CdrError, match="encapsulation"):
        messages.deserialize(kind + b"\0\0" + b"\1\0\0\0\0\0\0\0", "std_msgs/msg/String")


def test_left_over_bytes_are_refused() -> None:
    payload = messages.serialize_bytes(messages.message_type("std_msgs/msg/Bool")(data=True))
    assert messages.deserialize(payload + b"\0\0\0", "std_msgs/msg/Bool").data is True
    with pytest.raises(CdrError, match="left over"):
        messages.deserialize(payload + b"\0\0\0\0", "std_msgs/msg/Bool")


def test_strings_without_nul_or_utf8_are_refused() -> None:
    for data in (b"\2\0\0\0ab", b"\2\0\0\0\xff\0"):
        with pytest.raises(CdrError):
            messages.deserialize(b"\0\1\0\0" + data, "std_msgs/msg/String")


def test_big_endian_is_understood() -> None:
    payload = b"\0\0\0\0" + np.array([1, 7], ">i4").tobytes()[:4] + np.array([7], ">u4").tobytes()
    time = messages.deserialize(payload, "builtin_interfaces/msg/Time")
    assert (time.sec, time.nanosec) == (1, 7)
    layout = np.array([0, 0, 2], ">u4").tobytes()
    values = b"\0\0\0\0" + layout + bytes(4) + np.array([1.5, -2.0], ">f8").tobytes()
    assert messages.deserialize(values, "std_msgs/msg/Float64MultiArray").data.tolist() == [1.5, -2.0]


def test_pixels_are_never_copied() -> None:
    """The gather write gets the array itself, and a received image is a read-only view on its payload."""
    pixels = np.random.default_rng(0).integers(0, 256, 64 * 64 * 3, dtype=np.uint8)
    image = messages.message_type("sensor_msgs/msg/Image")(height=64, width=64, step=192, data=pixels)
    assert image.data is pixels or np.shares_memory(image.data, pixels)
    pieces = messages.serialize(image)
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), pixels) for piece in pieces)
    payload = b"".join(pieces)
    received = messages.deserialize(payload, "sensor_msgs/msg/Image")
    assert np.shares_memory(received.data, np.frombuffer(payload, np.uint8))
    assert not received.data.flags.writeable


def test_small_arrays_after_large_ones_are_aligned() -> None:
    """Alignment counts the bytes that already left for the gather write."""
    kind = messages.message_type("sensor_msgs/msg/JointState")
    message = kind(name=["a", "b"], position=np.arange(2001.0), velocity=[1.0], effort=np.arange(1001.0))
    payload = messages.serialize_bytes(message)
    store_type = messages.STORE.types["sensor_msgs/msg/JointState"]
    theirs = messages.STORE.deserialize_cdr(payload, "sensor_msgs/msg/JointState")
    assert isinstance(theirs, store_type)
    assert theirs.effort.tolist() == message.effort.tolist()  # type: ignore[attr-defined]
    assert messages.deserialize(payload, "sensor_msgs/msg/JointState") == message
