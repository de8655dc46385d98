"""Images and stamps as messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from auras_ros.ros.image import compressed_message, image_message, stamp_ns, to_time_msg
from auras_ros.ros.msg import Header


@pytest.mark.parametrize(
    ("shape", "encoding", "step"),
    [
        ((4, 6, 3), "rgb8", 18),
        ((4, 6, 3), "bgr8", 18),
        ((4, 6), "mono8", 6),
        ((4, 6, 1), "mono8", 6),
        ((4, 6, 4), "rgba8", 24),
    ],
)
def test_fields_follow_from_the_array(shape: tuple[int, ...], encoding: str, step: int) -> None:
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    message = image_message(pixels, stamp_ns=3 * 10**9 + 7, frame_id="top", encoding=encoding)
    assert (message.height, message.width, message.step, message.encoding) == (4, 6, step, encoding)
    assert message.is_bigendian == 0
    assert stamp_ns(message) == stamp_ns(message.header) == stamp_ns(message.header.stamp) == 3 * 10**9 + 7
    assert np.shares_memory(message.data, pixels)
    np.testing.assert_array_equal(message.data.reshape(shape), pixels)


def test_a_strided_array_is_laid_out_first() -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)[:, ::-1]
    message = image_message(pixels, stamp_ns=0, frame_id="", encoding="bgr8")
    np.testing.assert_array_equal(message.data.reshape(4, 5, 3), pixels)


@pytest.mark.parametrize(
    ("array", "encoding", "error"),
    [
        (np.zeros((2, 2, 3), np.float32), "rgb8", TypeError), (np.zeros((2, 2, 3), np.uint8), "mono8", ValueError),
        (np.zeros((2, 2), np.uint8), "rgb8", ValueError), (np.zeros((2, 2, 3), np.uint8), "yuv", ValueError),
        (np.zeros(4, np.uint8), "mono8", ValueError),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(array: Any, encoding: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="image"):
        image_message(array, stamp_ns=0, frame_id="", encoding=encoding)


def test_compressed_and_stamps() -> None:
    message = compressed_message(b"\xff\xd8\xff", format="jpeg", stamp_ns=5, frame_id="c")
    assert (message.format, bytes(message.data), stamp_ns(message)) == ("jpeg", b"\xff\xd8\xff", 5)
    assert stamp_ns(Header(stamp=to_time_msg(-1))) == -1
    with pytest.raises(ValueError, match="32 bits"):
        to_time_msg(2**31 * 10**9)
