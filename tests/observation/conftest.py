"""Builders that the tests of this room share: specifications, frames, PNG and JPEG files."""

from __future__ import annotations

import struct
import zlib
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from auras_ros.observation import ObservationSpec

MS = 1_000_000


def spec(cameras: tuple[str, ...] = ("top",), state: bool = True, history: int = 1, **camera: Any) -> ObservationSpec:
    """Cameras of 4 x 6 pixels, joints j1 and j2 in [-1, 1], steps of 100 ms."""
    return ObservationSpec.from_dict(
        {
            "cameras": [{"name": name, "height": 4, "width": 6, **camera} for name in cameras],
            "state": {"names": ["j1", "j2"]} if state else None,
            "history": history,
            "dt_ms": 100,
        }
    )


def frame(value: int = 0, height: int = 4, width: int = 6) -> np.ndarray:
    return np.full((height, width, 3), value, dtype=np.uint8)


def noise(height: int, width: int, seed: int = 0, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encode(rgb: np.ndarray, suffix: str, *options: int) -> bytes:
    ok, data = cv2.imencode(suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), list(options))
    assert ok
    return bytes(data)


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_header(width: int, height: int, depth: int = 8) -> bytes:
    """A valid beginning of a PNG of any claimed size, with an end but no pixels."""
    body = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", body) + png_chunk(b"IEND", b"")


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    return SimpleNamespace(spec=spec, frame=frame, noise=noise, encode=encode, png_header=png_header, MS=MS)
