"""What cameras send beside RGB: YUV of three kinds, Bayer mosaics and 16-bit samples, each against its definition.

The references are written out here in numpy; the code under test uses OpenCV where it can.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.observation import FaultName, ObservationError, decode_raw

Pixels = NDArray[np.uint8]
SIZES = [(6, 8), (5, 8), (3, 4), (7, 10)]
ODD = [(6, 8), (5, 7), (3, 3), (4, 9)]


def random(*shape: int) -> Pixels:
    return np.random.default_rng(len(shape) + sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def read(encoding: str, rows: NDArray[Any], width: int, pad: int = 0, **changes: Any) -> Pixels:
    data = np.pad(rows, ((0, 0), (0, pad)), constant_values=77)
    fields = {"height": len(rows), "width": width, "step": data.shape[1], "data": data.tobytes(), **changes}
    return decode_raw(encoding=encoding, **fields)


def bt601(y: Any, u: Any, v: Any) -> NDArray[np.float64]:
    """Video range, full precision; below black is black."""
    luma, blue, red = 1.164383 * np.maximum(y - 16.0, 0.0), u - 128.0, v - 128.0
    rgb = [luma + 1.596027 * red, luma - 0.812968 * red - 0.391762 * blue, luma + 2.017232 * blue]
    return np.clip(np.stack(rgb, axis=-1), 0, 255)


@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize(
    ("encoding", "order"),
    [("yuv422", "uyvy"), ("uyvy", "uyvy"), ("yuv422_yuy2", "yuyv"), ("yuyv", "yuyv")],
)
def test_yuv_in_both_orders(encoding: str, order: str, height: int, width: int, pad: int) -> None:
    rows = random(height, 2 * width)
    pairs = rows.reshape(height, width // 2, 4).astype(float)
    at = {letter: [i for i, each in enumerate(order) if each == letter] for letter in "yuv"}
    y = pairs[:, :, at["y"]].reshape(height, width)
    u, v = (np.repeat(pairs[:, :, at[letter][0]], 2, axis=1) for letter in "uv")
    np.testing.assert_allclose(read(encoding, rows, width, pad), bt601(y, u, v), atol=1.5)


@pytest.mark.parametrize("pad", [0, 6])
@pytest.mark.parametrize(("height", "width"), [(6, 8), (2, 2), (4, 10)])
@pytest.mark.parametrize(("encoding", "order"), [("nv12", "uv"), ("nv21", "vu")])
def test_colours_of_four_pixels_after_all_brightness(
    encoding: str, order: str, height: int, width: int, pad: int
) -> None:
    """What a Jetson's cameras and video decoders give."""
    rows = random(height * 3 // 2, width)
    pairs = rows[height:].reshape(height // 2, width // 2, 2).astype(float).repeat(2, axis=0).repeat(2, axis=1)
    u, v = (pairs[:, :, order.index(letter)] for letter in "uv")
    image = read(encoding, rows, width, pad, height=height)
    assert image.shape == (height, width, 3)
    np.testing.assert_allclose(image, bt601(rows[:height].astype(float), u, v), atol=1.5)
    np.testing.assert_array_equal(image, cv2.cvtColor(rows, getattr(cv2, f"COLOR_YUV2RGB_{encoding.upper()}")))


def bilinear(mosaic: Pixels, names: str) -> NDArray[np.float64]:
    """The mean of a pixel's nearest neighbours of each colour; at the rim what the pixel further in has."""
    height, width = mosaic.shape
    colours = np.array([[names[2 * (row % 2) + column % 2] for column in range(width)] for row in range(height)])
    made = np.zeros((height, width, 3))
    for row in range(1, height - 1):
        for column in range(1, width - 1):
            values, around = (grid[row - 1 : row + 2, column - 1 : column + 2] for grid in (mosaic, colours))
            for channel, name in enumerate("rgb"):
                if around[1, 1] == name:
                    made[row, column, channel] = values[1, 1]
                else:
                    made[row, column, channel] = values[around == name].mean()
    inner = made[1:-1, 1:-1]
    return np.pad(inner, ((1, 1), (1, 1), (0, 0)), mode="edge")


@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize(("height", "width"), ODD)
@pytest.mark.parametrize("names", ["rggb", "bggr", "gbrg", "grbg"])
def test_bayer_mosaics(names: str, height: int, width: int, pad: int) -> None:
    mosaic = random(height, width)
    np.testing.assert_allclose(
        read(f"bayer_{names}8", mosaic, width, pad), bilinear(mosaic, names), atol=0.75, err_msg=names
    )


@pytest.mark.parametrize("big_endian", [0, 1])
@pytest.mark.parametrize("names", ["rggb", "bggr", "gbrg", "grbg"])
def test_bayer_mosaics_of_16_bits(names: str, big_endian: int) -> None:
    values = np.random.default_rng(2).integers(0, 65536, (6, 8))
    rows = values.astype(">u2" if big_endian else "<u2").view(np.uint8)
    image = read(f"bayer_{names}16", rows, 8, 2, is_bigendian=big_endian)
    np.testing.assert_allclose(image, bilinear(values, names) * 255 / 65535, atol=0.51, err_msg=names)


@pytest.mark.parametrize("big_endian", [0, 1])
@pytest.mark.parametrize("encoding", ["rgb16", "bgr16", "rgba16", "bgra16"])
def test_16_bit_colours_keep_their_range(encoding: str, big_endian: int) -> None:
    samples = len(encoding) - 2
    values = np.random.default_rng(3).integers(0, 65536, (5, 7, samples)).astype(">u2" if big_endian else "<u2")
    values[0, 0], values[0, 1] = 0, 65535
    rows = values.reshape(5, -1).view(np.uint8)
    image = read(encoding, rows, 7, 4, is_bigendian=big_endian)
    colours = values[..., 2::-1] if encoding.startswith("bgr") else values[..., :3]
    np.testing.assert_array_equal(image, np.round(colours.astype(np.float64) * 255 / 65535))


@pytest.mark.parametrize("big_endian", [0, 1])
@pytest.mark.parametrize(("height", "width"), ODD)
def test_16_bit_grey_keeps_its_range(height: int, width: int, big_endian: int) -> None:
    values = np.random.default_rng(1).integers(0, 65536, (height, width)).astype(">u2" if big_endian else "<u2")
    values[0, :2] = 0, 65535
    rows = values.view(np.uint8).reshape(height, -1)
    image = read("mono16", rows, width, 3, is_bigendian=big_endian)
    reference = cv2.convertScaleAbs(values.astype(np.float64), alpha=255 / 65535)
    np.testing.assert_allclose(image, np.repeat(reference[:, :, None], 3, axis=2), atol=0)
    assert image[0, :2, 0].tolist() == [0, 255]


def refusal(encoding: str, **fields: Any) -> tuple[FaultName, str, str]:
    with pytest.raises(ObservationError) as caught:
        decode_raw(encoding=encoding, **fields)
    return caught.value.fault.name, caught.value.fault.source, caught.value.fault.detail


@pytest.mark.parametrize("encoding", ["yuv422", "uyvy", "yuv422_yuy2", "yuyv", "bayer_rggb8", "mono16"])
def test_what_does_not_add_up_is_refused_by_its_field(encoding: str) -> None:
    pixel = 1 if encoding.startswith("bayer") else 2
    good = {"height": 4, "width": 6, "step": 6 * pixel, "data": bytes(24 * pixel)}
    assert decode_raw(encoding=encoding, **good).shape == (4, 6, 3)
    assert refusal(encoding, **{**good, "step": 6 * pixel - 1})[:2] == (FaultName.BAD_STEP, "step")
    assert refusal(encoding, **{**good, "data": bytes(24 * pixel - 1)})[:2] == (FaultName.BAD_DATA, "data")
    assert refusal(encoding, **{**good, "expected": (4, 8)})[:2] == (FaultName.BAD_SIZE, "height x width")


def test_pairs_of_pixels_need_an_even_width_and_a_mosaic_some_room() -> None:
    odd = {"height": 4, "width": 5, "step": 10, "data": bytes(40)}
    assert refusal("yuyv", **odd)[:2] == (FaultName.BAD_SIZE, "width")
    for height, width, side in ((4, 5, "width"), (3, 6, "height")):
        fields = {"height": height, "width": width, "step": width, "data": bytes(9 * width)}
        assert refusal("nv12", **fields)[:2] == (FaultName.BAD_SIZE, side)
    luma_alone = {"height": 4, "width": 6, "step": 6, "data": bytes(24)}
    assert refusal("nv12", **luma_alone) == (FaultName.BAD_DATA, "data", "24 bytes, expected 6 x 6")
    small = {"height": 2, "width": 5, "step": 5, "data": bytes(10)}
    assert refusal("bayer_gbrg8", **small)[:2] == (FaultName.BAD_SIZE, "height")


@pytest.mark.parametrize("encoding", ["16UC1", "32FC1"])
def test_a_depth_image_is_refused_with_the_reason(encoding: str) -> None:
    name, source, detail = refusal(encoding, height=2, width=2, step=4, data=bytes(8))
    assert (name, source) == (FaultName.BAD_ENCODING, "encoding")
    assert "depth" in detail
