"""Messages convert what they are given or refuse it by the field's name."""

from __future__ import annotations

import array
import copy
from typing import Any

import numpy as np
import pytest

from auras_ros.ros.dds.messages import message_type, serialize_bytes
from auras_ros.ros.msg import (
    Bool,
    CompressedImage,
    DiagnosticArray,
    DiagnosticStatus,
    Float32,
    Float64MultiArray,
    Header,
    Image,
    JointState,
    KeyValue,
    MultiArrayDimension,
    MultiArrayLayout,
    Quaternion,
    String,
    TimeMsg,
    UInt64,
)


@pytest.mark.parametrize(
    "values",
    [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3]), np.array([1, 2, 3], np.float32), array.array("d", [1, 2, 3]),
     array.array("l", [1, 2, 3]), range(1, 4), [np.int64(1), 2.0, 3]],
)  # fmt: skip
def test_numbers_become_the_fields_dtype(values: Any) -> None:
    """int64 data in a float64 field went out as garbage from the library beneath."""
    message = Float64MultiArray(data=values)
    assert message.data.dtype == np.float64
    assert message.data.tolist() == [1.0, 2.0, 3.0]
    assert np.frombuffer(serialize_bytes(message)[-24:], "<f8").tolist() == [1.0, 2.0, 3.0]


def test_images_of_any_shape_are_flattened_in_row_order() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert Image(data=pixels).data.tolist() == list(range(24))
    assert Image(data=pixels.transpose(1, 0, 2)).data.tolist() == pixels.transpose(1, 0, 2).ravel().tolist()
    assert CompressedImage(data=b"\1\2\3").data.tolist() == [1, 2, 3]
    assert Image(data=pixels[:, ::2]).data.size == 12


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Image, "data", [256]), (Image, "data", [-1]), (Image, "data", np.array([300])), (Image, "height", -1),
        (Image, "height", 2**32), (Image, "is_bigendian", 256), (TimeMsg, "sec", 2**31), (UInt64, "data", 2**64),
        (Float32, "data", 1e300), (KeyValue, "nothing", 1),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_name(kind: Any, field: str, value: Any) -> None:
    with pytest.raises((ValueError, AttributeError), match=field):
        kind(**{field: value})


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (String, "data", 3), (String, "data", b"bytes"), (Bool, "data", 1), (Bool, "data", "yes"),
        (Image, "height", 1.5), (Image, "height", "4"), (Image, "data", [1.5]), (Image, "data", "text"),
        (Image, "data", np.array([1.5])), (Image, "header", String()), (Float64MultiArray, "data", ["a"]),
        (Float64MultiArray, "data", [[1.0], [1.0, 2.0]]), (Float64MultiArray, "data", 1.0),
        (JointState, "name", "not_a_list"), (JointState, "name", [1]), (DiagnosticArray, "status", [String()]),
        (DiagnosticStatus, "level", 1), (DiagnosticStatus, "level", b"\1\2"), (Float32, "data", True),
        (Float64MultiArray, "data", [True]),
    ],
)  # fmt: skip
def test_what_is_of_the_wrong_type_is_refused_by_name(kind: Any, field: str, value: Any) -> None:
    with pytest.raises(TypeError, match=field):
        kind(**{field: value})


def test_assignment_is_checked_like_construction() -> None:
    message = Image()
    with pytest.raises(ValueError, match=r"sensor_msgs/msg/Image\.height"):
        message.height = -1
    with pytest.raises(AttributeError, match="heigth"):
        message.heigth = 1
    assert message.height == 0


def test_appended_items_are_checked_when_sent() -> None:
    """A list field is the caller's own list, so what is appended escapes assignment."""
    message = JointState(name=["a"])
    message.name.append("b")
    assert b"b\0" in serialize_bytes(message)
    message.name.append(3)
    with pytest.raises(TypeError, match=r"JointState\.name"):
        serialize_bytes(message)


def test_defaults_are_not_shared() -> None:
    first, second = DiagnosticArray(), DiagnosticArray()
    first.status.append(DiagnosticStatus())
    first.header.stamp.sec = 5
    assert second.status == []
    assert second.header.stamp.sec == 0
    assert Quaternion().w == 1.0


def test_fixed_arrays_need_their_length() -> None:
    gid = message_type("rmw_dds_common/msg/Gid")
    with pytest.raises(ValueError, match="exactly 16"):
        gid(data=bytes(15))
    matrix = message_type("sensor_msgs/msg/CameraInfo")(k=range(9)).k
    assert matrix.dtype == np.float64


def test_bounds_hold_on_assignment() -> None:
    descriptor = message_type("rcl_interfaces/msg/ParameterDescriptor")
    one = message_type("rcl_interfaces/msg/IntegerRange")()
    with pytest.raises(ValueError, match="at most 1"):
        descriptor(integer_range=[one, one])


def test_equality_copy_and_repr() -> None:
    layout = MultiArrayLayout(dim=[MultiArrayDimension(label="horizon", size=2, stride=4)])
    message = Float64MultiArray(layout=layout, data=[1, 2])
    twin = copy.deepcopy(message)
    assert twin == message
    twin.layout.dim[0].size = 3
    assert twin != message
    assert "horizon" in repr(message)
    assert message != Header()


def test_constants_are_on_the_class() -> None:
    assert DiagnosticStatus.ERROR == b"\2"
    assert DiagnosticStatus(level=DiagnosticStatus.WARN).level == b"\1"


def test_a_type_without_a_definition_is_named() -> None:
    with pytest.raises(KeyError, match="auras_test_msgs/msg/Absent"):
        message_type("auras_test_msgs/msg/Absent")
