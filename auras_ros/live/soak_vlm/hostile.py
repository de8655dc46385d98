"""Requests that must be refused: each with its status, and what the refusal must name."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any, NamedTuple

from auras_ros.live.soak_vlm.client import http_bytes

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


class HostileAsk(NamedTuple):
    """named: a part of the refusal's text."""

    raw: bytes
    status: int
    named: str


def hostile(chance: random.Random, body_mib: int) -> dict[str, HostileAsk]:
    """body_mib: the server's limit. Its other limits are its defaults."""
    deep, large = chance.choice([5_000, 30_000]), b" " * ((body_mib << 20) + chance.randrange(1, 9999))
    nested = '{"properties":{"a":' * (depth := chance.randrange(150, 400)) + "{}" + "}}" * depth
    picture = _png(8, 8)
    return {
        "no HTTP": HostileAsk(b"\x16\x03\x01" + chance.randbytes(64) + b"\r\n\r\n", 400, "Invalid HTTP"),
        "no JSON": _text(b'{"prompt": "a"', "not JSON"),
        "no object": _text(b"[1, 2]", "not a JSON object"),
        "not UTF-8": _text(b'{"prompt": "' + chance.choice([b"\xff\xfe", b"\xc3(", b"\x80"]) + b'"}', "not JSON"),
        "deep JSON": _text(b'{"prompt": ' + b"[" * deep + b"]" * deep + b"}", "not JSON"),
        "deep list": _text({"prompt": json.loads("[" * depth + "]" * depth)}, "prompt"),
        "deep schema": _text(
            f'{{"prompt": "a", "structured_outputs": {{"json": {nested}}}}}'.encode(), "json_schema"
        ),
        "repeated key": _text(b'{"prompt": "a", "seed": 1, "seed": 2}', "'seed'"),
        "unknown field": _text({"prompt": "a", "temprature": 0.5}, "temprature"),
        "no number": _text(b'{"prompt": "a", "temperature": NaN}', "NaN"),
        "infinite": _text(b'{"prompt": "a", "temperature": 1e999}', "temperature"),
        "endless number": _text(b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", "not JSON"),
        "wrong count": _text({"prompt": "a", "max_tokens": chance.choice([-1, 0, 10**30, "5", 1 << 19])}, "max_tokens"),
        "wrong deadline": _text({"prompt": "a", "deadline_ms": chance.choice([-1, 0, 1e300])}, "deadline_ms"),
        "many stops": _text({"prompt": "a", "stop": ["x"] * chance.choice([17, 9000])}, "stop"),
        "long prompt": _text({"prompt": "tee " * 50_000}, "prompt"),
        "unknown token": _text({"prompt": [1, chance.choice([-1, 2**40, 2**70])]}, "prompt"),
        "half a letter": _text({"prompt": "\ud800"}, "prompt"),
        "broken regex": _text({"prompt": "a", "guided_regex": "(" * chance.choice([1, 9000])}, "regex"),
        "exploding regex": _text({"prompt": "a", "guided_regex": "a{1000000}"}, "regex"),
        "schema to nowhere": _text({"prompt": "a", "structured_outputs": {"json": {"$ref": "#/no"}}}, "json_schema"),
        "no messages": _chat([], "messages"),
        "many images": _chat([_url(picture)] * 9, "image_url"),
        "image elsewhere": _chat([chance.choice(["http://127.0.0.1:1/a.png", "file:///etc/passwd"])], "image_url"),
        "broken base64": _chat(["data:image/png;base64,AAA!"], "image_url"),
        "huge broken image": _chat([_url(chance.randbytes(400_000))], "image_url"),
        "cut image": _chat([_url(picture[: chance.randrange(1, len(picture) // 2)])], "image_url"),
        "enormous image": _chat([_url(_png(60_000, 60_000))], "image_url"),
        "thin image": _chat([_url(_png(1, 3000))], "image_url"),
        "another model": HostileAsk(_post(TEXT, {"prompt": "a", "model": "gpt"}), 404, "model"),
        "another address": HostileAsk(_post("/v1/" + "x" * chance.choice([1, 4000]), {}), 404, "Not Found"),
        "another method": HostileAsk(http_bytes(CHAT, b"", method="PUT"), 405, "PUT"),
        "another type": HostileAsk(http_bytes(TEXT, b"prompt=a", "text/plain"), 415, "Content-Type"),
        "large body": HostileAsk(http_bytes(TEXT, large), 413, "larger than"),
        "large body in chunks": HostileAsk(_chunked(TEXT, large), 413, "larger than"),
    }  # fmt: skip


def _text(fields: bytes | dict[str, Any], named: str) -> HostileAsk:
    return HostileAsk(_post(TEXT, fields), 400, named)


def _chat(urls: list[str], named: str) -> HostileAsk:
    """Images of one message; without any there is no message."""
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return HostileAsk(_post(CHAT, {"messages": [{"role": "user", "content": content}] if urls else []}), 400, named)


def _post(path: str, fields: bytes | dict[str, Any]) -> bytes:
    return http_bytes(path, fields if isinstance(fields, bytes) else json.dumps(fields).encode())


def _chunked(path: str, body: bytes) -> bytes:
    """Nobody says beforehand how long it is."""
    head = http_bytes(path, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return head + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def _png(width: int, height: int) -> bytes:
    """A black picture; of a large one only the head is right."""
    rows = zlib.compress(bytes(min((3 * width + 1) * height, 1 << 16)))
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\x00\x00\x00"
    parts = [(b"IHDR", size), (b"IDAT", rows), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big") for name, data in parts
    )


def _url(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()
