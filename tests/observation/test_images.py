"""Images that do not add up are refused by field, before memory is spent; whole ones arrive as RGB."""

from __future__ import annotations

import struct
import threading
import time
import tracemalloc
import zlib
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.live.soak_vlm.attacks.bodies import progressive_jpeg
from auras_ros.observation import (
    REQUEST_FILES,
    FaultName,
    ObservationError,
    compressed_size,
    decode_compressed,
    decode_raw,
)

RGB = np.random.default_rng(3).integers(0, 256, (3, 5, 3), dtype=np.uint8)
ALPHA = np.full((3, 5, 1), 9, np.uint8)


def raw(pixels: np.ndarray, encoding: str, pad: int = 0, **changes: Any) -> np.ndarray:
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    data = np.pad(rows, ((0, 0), (0, pad)), constant_values=77).tobytes()
    fields: dict[str, Any] = {"height": height, "width": width, "step": rows.shape[1] + pad, "data": data}
    return decode_raw(encoding=encoding, **{**fields, **changes})


@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize(
    ("encoding", "pixels"),
    [
        ("rgb8", RGB),
        ("bgr8", RGB[:, :, ::-1]),
        ("rgba8", np.concatenate([RGB, ALPHA], axis=2)),
        ("bgra8", np.concatenate([RGB[:, :, ::-1], ALPHA], axis=2)),
    ],
)
def test_every_encoding_and_padding_gives_rgb(encoding: str, pixels: np.ndarray, pad: int) -> None:
    np.testing.assert_array_equal(raw(pixels, encoding, pad), RGB)


def test_grey_is_repeated() -> None:
    image = raw(RGB[:, :, :1], "mono8")
    np.testing.assert_array_equal(image, np.repeat(RGB[:, :, :1], 3, axis=2))


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8"])
def test_pixels_are_not_copied(encoding: str) -> None:
    data = RGB.copy()
    image = decode_raw(height=3, width=5, encoding=encoding, step=15, data=data.reshape(-1))
    assert np.shares_memory(image, data)


def fault(call: Any, *args: Any, **kwargs: Any) -> tuple[FaultName, str]:
    with pytest.raises(ObservationError) as caught:
        call(*args, **kwargs)
    return caught.value.fault.name, caught.value.fault.source


@pytest.mark.parametrize(
    ("encoding", "changes", "expected"),
    [
        ("16UC1", {}, (FaultName.BAD_ENCODING, "encoding")),
        ("", {}, (FaultName.BAD_ENCODING, "encoding")),
        ("rgb32", {}, (FaultName.BAD_ENCODING, "encoding")),
        ("rgb8", {"height": 0}, (FaultName.BAD_SIZE, "height")),
        ("rgb8", {"width": 0}, (FaultName.BAD_SIZE, "width")),
        ("rgb8", {"width": -5}, (FaultName.BAD_SIZE, "width")),
        ("rgb8", {"step": 14}, (FaultName.BAD_STEP, "step")),
        ("rgb8", {"step": 0}, (FaultName.BAD_STEP, "step")),
        ("rgba8", {}, (FaultName.BAD_STEP, "step")),
        ("rgb8", {"step": 16}, (FaultName.BAD_DATA, "data")),
        ("rgb8", {"height": 4}, (FaultName.BAD_DATA, "data")),
        ("rgb8", {"data": b""}, (FaultName.BAD_DATA, "data")),
        ("rgb8", {"data": b"x" * 46}, (FaultName.BAD_DATA, "data")),
        ("rgb8", {"data": np.zeros(45)}, (FaultName.BAD_DATA, "data")),
        ("rgb8", {"height": 2**32 - 1, "width": 2**32 - 1, "step": 2**34}, (FaultName.TOO_LARGE, "height x width")),
        ("rgb8", {"max_pixels": 14}, (FaultName.TOO_LARGE, "height x width")),
    ],
)
def test_a_raw_image_that_does_not_add_up_is_refused_by_field(
    encoding: str, changes: dict[str, Any], expected: tuple[FaultName, str]
) -> None:
    assert fault(raw, RGB, encoding, **changes) == expected


def test_png_comes_back_exactly_and_jpeg_nearly(make: SimpleNamespace) -> None:
    image = cv2.GaussianBlur(make.noise(48, 64), (0, 0), 4)
    np.testing.assert_array_equal(decode_compressed(make.encode(image, ".png")), image)
    decoded = decode_compressed(make.encode(image, ".jpg", cv2.IMWRITE_JPEG_QUALITY, 98))
    assert np.abs(decoded.astype(int) - image).mean() < 2
    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    assert decode_compressed(make.encode(red, ".jpg"))[8, 8].tolist() == pytest.approx([255, 0, 0], abs=4)


@pytest.mark.parametrize("options", [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 1)])
def test_jpeg_flavours_have_their_size_in_the_header(make: SimpleNamespace, options: tuple[int, ...]) -> None:
    data = make.encode(make.noise(33, 47), ".jpg", *options)
    assert compressed_size(data) == (33, 47)
    assert decode_compressed(data).shape == (33, 47, 3)


def test_grey_files_are_repeated(make: SimpleNamespace) -> None:
    grey = make.noise(8, 9, channels=1)
    for suffix in (".png", ".jpg"):
        _, data = cv2.imencode(suffix, grey)
        image = decode_compressed(data)
        assert image.shape == (8, 9, 3)
        np.testing.assert_array_equal(image[..., 0], image[..., 2])


def test_exif_rotation_is_not_applied(make: SimpleNamespace) -> None:
    tag = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
    data = make.encode(make.noise(16, 32), ".jpg")
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(tag) + 2) + tag + data[2:]
    assert decode_compressed(data).shape == (16, 32, 3)


@pytest.mark.parametrize(("width", "height"), [(60_000, 60_000), (2**31, 1), (1, 2**31), (2**31, 2**31)])
def test_a_huge_claim_is_refused_without_memory(make: SimpleNamespace, width: int, height: int) -> None:
    """Reliability: the size limit is checked before decoding."""
    data = make.png_header(width, height)
    tracemalloc.start()
    try:
        assert fault(decode_compressed, data) == (FaultName.TOO_LARGE, "height x width")
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()


def test_a_huge_jpeg_claim_is_refused_before_the_decoder_runs(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(make.encode(make.noise(16, 16), ".jpg"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 60_000, 60_000)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("the decoder ran"))
    assert fault(decode_compressed, bytes(data)) == (FaultName.TOO_LARGE, "height x width")


def test_a_decoder_that_reads_another_size_than_we_did_is_not_believed(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make.encode(make.noise(16, 16), ".png")
    monkeypatch.setattr(cv2, "imdecode", lambda *_: make.noise(16, 17))
    assert fault(decode_compressed, data) == (FaultName.BAD_DATA, "data")


def test_the_limit_and_the_file_size_are_checked(make: SimpleNamespace) -> None:
    data = make.encode(make.noise(10, 10), ".png")
    assert fault(decode_compressed, data, max_pixels=99) == (FaultName.TOO_LARGE, "height x width")
    assert decode_compressed(data, max_pixels=100).shape == (10, 10, 3)
    assert fault(decode_compressed, b"\x00" * 70_000, max_pixels=100) == (FaultName.TOO_LARGE, "data")


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_every_truncation_is_refused(make: SimpleNamespace, suffix: str) -> None:
    """A decoder would fill the rest with grey and say nothing."""
    data = make.encode(make.noise(12, 12), suffix)
    for length in range(len(data)):
        name, source = fault(decode_compressed, data[:length])
        assert (name in (FaultName.BAD_DATA, FaultName.BAD_ENCODING), source) == (True, "data"), length


def test_a_flipped_bit_in_a_png_is_refused(make: SimpleNamespace) -> None:
    data = make.encode(make.noise(12, 12), ".png")
    rng = np.random.default_rng(0)
    for _ in range(200):
        flipped = bytearray(data)
        flipped[rng.integers(8, len(data))] ^= 1 << rng.integers(0, 8)
        assert fault(decode_compressed, bytes(flipped))[0] in (
            FaultName.BAD_DATA, FaultName.TOO_LARGE, FaultName.BAD_SIZE, FaultName.BAD_ENCODING
        )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", FaultName.BAD_DATA),
        (b"GIF89a" + b"\x00" * 99, FaultName.BAD_ENCODING),
        (b"\xff\xd8", FaultName.BAD_DATA),
        (b"\xff\xd8\xff\xd9", FaultName.BAD_DATA),
        (b"\xff\xd8\xff\xda\x00\x08" + b"\x00" * 20 + b"\xff\xd9", FaultName.BAD_DATA),
        (b"\xff\xd8garbage!\xff\xd9", FaultName.BAD_DATA),
        (b"\xff\xd8\xff\xe0\x00\x00" * 9, FaultName.BAD_DATA),
        (b"\xff\xd8\xff\xc0\x00\x0b\x0c\x00\x08\x00\x08\x03\x00\xff\xd9", FaultName.BAD_ENCODING),
        (b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x04\x00\xff\xd9", FaultName.BAD_ENCODING),
        (b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x00\x00\x08\x03\x00\xff\xd9", FaultName.BAD_SIZE),
        (b"\xff\xd8\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x03\x00\xff\xd9", FaultName.BAD_DATA),
    ],
)
def test_broken_files_are_named(data: bytes, name: FaultName) -> None:
    assert fault(decode_compressed, data)[0] is name


def test_samples_of_other_depths_are_refused(make: SimpleNamespace) -> None:
    assert fault(decode_compressed, make.png_header(8, 8, depth=12)) == (FaultName.BAD_DATA, "data")
    assert fault(decode_compressed, make.png_header(0, 8))[0] is FaultName.BAD_SIZE
    assert fault(decode_compressed, make.png_header(8, 8))[0] is FaultName.BAD_DATA


@settings(max_examples=300, deadline=None)
@given(
    head=st.sampled_from(
        [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xc0\x00\x11\x08"]
    ),
    body=st.binary(max_size=300),
    tail=st.sampled_from([b"", b"\xff\xd9"]),
)
def test_random_bytes_are_refused_by_name_and_nothing_else_happens(head: bytes, body: bytes, tail: bytes) -> None:
    with pytest.raises(ObservationError):
        decode_compressed(head + body + tail, max_pixels=10_000)


@settings(max_examples=150, deadline=None)
@given(at=st.integers(2, 10_000), value=st.integers(0, 255), suffix=st.sampled_from([".png", ".jpg"]))
def test_a_file_with_a_changed_byte_is_refused_or_keeps_its_form(at: int, value: int, suffix: str) -> None:
    ok, encoded = cv2.imencode(suffix, np.random.default_rng(1).integers(0, 256, (20, 24, 3), dtype=np.uint8))
    assert ok
    data = bytearray(encoded)
    data[at % len(data)] = value
    try:
        image = decode_compressed(bytes(data), max_pixels=10_000)
    except ObservationError:
        return
    assert image.dtype == np.uint8
    assert image.shape[2] == 3
    assert image.shape[0] * image.shape[1] <= 10_000


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_another_size_than_the_cameras_is_refused_before_it_is_decoded(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """A PNG of 47 KiB with 4096 x 4096 pixels decodes for most of a second."""
    data = make.encode(make.noise(32, 48), suffix)
    assert decode_compressed(data, expected=(32, 48)).shape == (32, 48, 3)

    def decoder(*_: Any) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(cv2, "imdecode", decoder)
    for expected in ((48, 32), (32, 47), (96, 96)):
        assert fault(decode_compressed, data, expected=expected) == (FaultName.BAD_SIZE, "height x width")
    flat = make.encode(np.zeros((4096, 4096, 3), np.uint8), suffix)
    assert fault(decode_compressed, flat, expected=(96, 96))[0] in (FaultName.BAD_SIZE, FaultName.TOO_LARGE)


def test_a_file_larger_than_its_pixels_could_make_it_is_refused(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    data = make.encode(make.noise(8, 8), ".jpg")
    padded = data[:2] + b"\xff\xfe\xff\xff" + bytes(65533) + data[2:] + bytes(64)
    assert fault(decode_compressed, padded) == (FaultName.TOO_LARGE, "data")


def test_files_of_countless_parts_are_refused(make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of a few bytes makes the decoder pass over the whole picture; segments cost time before any pixel."""
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    data = make.encode(make.noise(64, 64), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    scan = data[data.rindex(b"\xff\xda") : -2]
    many = data[:-2] + scan[:14] * 200 + data[-2:]
    assert fault(decode_compressed, many) == (FaultName.TOO_LARGE, "data")
    segments = data[:2] + b"\xff\xfe\x00\x02" * 12_000 + data[2:]
    assert fault(decode_compressed, segments) == (FaultName.TOO_LARGE, "data")
    png = make.png_header(256, 256)
    empty = png[33:45]
    chunks = png[:33] + empty.replace(b"IEND", b"teXt")[:8] + struct.pack(">I", zlib.crc32(b"teXt"))
    chunks = png[:33] + chunks[33:] * 12_000 + png[33:]
    assert fault(decode_compressed, chunks) == (FaultName.TOO_LARGE, "data")


@pytest.mark.parametrize(("side", "scans"), [(64, 1000), (64, 101), (4096, 33), (4096, 1000)])
def test_a_picture_of_more_passes_than_a_second_is_refused(
    monkeypatch: pytest.MonkeyPatch, side: int, scans: int
) -> None:
    """A thousand scans of 16 million pixels are 0.1 MB and took a thread for 30 s."""
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    data = progressive_jpeg(side, side, scans)
    assert len(data) < 150_000
    assert fault(decode_compressed, data) == (FaultName.TOO_LARGE, "data")
    assert fault(decode_compressed, data, rules=REQUEST_FILES)[0] is FaultName.TOO_LARGE


def test_a_progressive_picture_of_the_largest_size_is_read() -> None:
    """Ten scans are what encoders write."""
    assert decode_compressed(progressive_jpeg(4096, 4096, 8)).shape == (4096, 4096, 3)


def test_a_picture_with_something_behind_its_end_is_whole(make: SimpleNamespace) -> None:
    """Phones write data of their own there; the picture's end is what must have come."""
    data = make.encode(make.noise(12, 12), ".jpg")
    whole = decode_compressed(data)
    np.testing.assert_array_equal(decode_compressed(data + b"trailer of a phone" * 9), whole)
    assert fault(decode_compressed, data[:-2] + b"trailer of a phone" * 9) == (FaultName.BAD_DATA, "data")


@pytest.mark.parametrize("quality", [80, 101], ids=["lossy", "lossless"])
def test_webp_is_read_where_requests_send_it(make: SimpleNamespace, quality: int) -> None:
    """Cameras send none: on a topic it is refused."""
    pixels = make.noise(33, 47)
    data = make.encode(pixels, ".webp", cv2.IMWRITE_WEBP_QUALITY, quality)
    assert compressed_size(data, REQUEST_FILES) == (33, 47)
    image = decode_compressed(data, rules=REQUEST_FILES)
    assert image.shape == (33, 47, 3)
    if quality > 100:
        np.testing.assert_array_equal(image, pixels)
    assert fault(decode_compressed, data) == (FaultName.BAD_ENCODING, "data")
    assert fault(decode_compressed, data, 33 * 47 - 1, rules=REQUEST_FILES)[0] is FaultName.TOO_LARGE
    for length in range(len(data)):
        assert fault(decode_compressed, data[:length], rules=REQUEST_FILES)[1] == "data", length


def test_a_webp_canvas_is_its_size(make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (16_382).to_bytes(3, "little") * 2
    data = b"RIFF" + struct.pack("<I", 4 + len(canvas)) + b"WEBP" + canvas
    assert compressed_size(data, REQUEST_FILES) == (16_383, 16_383)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("decoded"))
    assert fault(decode_compressed, data, rules=REQUEST_FILES) == (FaultName.TOO_LARGE, "height x width")
    chunks = b"".join(b"ANMF" + bytes(4) for _ in range(12_000))
    small = canvas.replace((16_382).to_bytes(3, "little"), (255).to_bytes(3, "little"))
    many = b"RIFF" + struct.pack("<I", 4 + len(small + chunks)) + b"WEBP" + small + chunks
    assert fault(decode_compressed, many, rules=REQUEST_FILES) == (FaultName.TOO_LARGE, "data")


def test_a_request_s_image_is_turned_as_its_exif_says(make: SimpleNamespace) -> None:
    tag = b"Exif\x00\x00MM\x00*\x00\x00\x00\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
    data = make.encode(make.noise(16, 32), ".jpg")
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(tag) + 2) + tag + data[2:]
    lying = decode_compressed(data)
    np.testing.assert_array_equal(decode_compressed(data, rules=REQUEST_FILES), np.rot90(lying, -1))


def test_the_decoder_lets_other_threads_run(make: SimpleNamespace) -> None:
    """While one thread decodes for a long time another one goes on: the interpreter is not held."""
    data = make.encode(make.noise(3000, 3000), ".png")
    done, beats = threading.Event(), list[float]()

    def beat() -> None:
        while not done.is_set():
            beats.append(time.monotonic())
            done.wait(0.002)

    def during_one() -> int:
        began = time.monotonic()
        decode_compressed(data)
        ended = time.monotonic()
        return sum(began < at < ended for at in beats)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        found = [during_one() for _ in range(3)]
    finally:
        done.set()
        thread.join()
    assert max(found) >= 3, found
