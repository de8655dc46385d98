"""One request over a socket of its own, as bytes, by a client that may go away at any moment. No library: what is sent
may be no HTTP at all."""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
import time
from dataclasses import dataclass
from typing import cast

HOST = "127.0.0.1"
READ = 1 << 16


@dataclass(frozen=True)
class Leaving:
    """When a client goes: after so much of its request, after a time, or after so many events of a stream. abrupt: its
    connection is reset."""

    sent: float = 1.0
    after_s: float | None = None
    events: int | None = None
    abrupt: bool = False


@dataclass(frozen=True)
class WireAnswer:
    """status: 0 if none came. whole: whether it came to its end. left: whether the client went before that."""

    status: int
    body: bytes
    whole: bool
    left: bool
    ms: float


def http_bytes(
    path: str, body: bytes, content_type: str = "application/json", method: str = "POST", token: str = ""
) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {content_type}\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {token}\r\n" if token else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def exchange(port: int, raw: bytes, limit_s: float, leaving: Leaving | None = None) -> WireAnswer:
    """Raises TimeoutError if the answer has not ended after limit_s, or OSError."""
    begin_s, going, came = time.monotonic(), leaving or Leaving(), bytearray()
    reader, writer = await asyncio.open_connection(HOST, port)
    if going.abrupt:
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, for no time: closing resets
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async def converse() -> bool:
        """Returns whether the client goes."""
        writer.write(raw[: round(going.sent * len(raw))])
        await writer.drain()
        while going.sent == 1.0 and (piece := await reader.read(READ)):
            came.extend(piece)
            if going.events is not None and came.count(b"data: ") >= going.events:
                return True
        return going.sent < 1.0

    try:
        left = await asyncio.wait_for(converse(), limit_s if going.after_s is None else going.after_s)
    except asyncio.TimeoutError:  # its own class until Python 3.11
        if going.after_s is None:
            raise TimeoutError(f"no end after {limit_s:g} s; it began: {bytes(came[:200])!r}") from None
        left = True
    except ConnectionError:  # judged by what has come
        left = False
    finally:
        writer.transport.close()
    status, body, whole = read_http(bytes(came))
    return WireAnswer(status, body, whole and not left, left, 1e3 * (time.monotonic() - begin_s))


def read_http(came: bytes) -> tuple[int, bytes, bool]:
    """Status, body as far as it has come, and whether that is all of it."""
    try:
        response = http.client.HTTPResponse(cast(socket.socket, _Came(came)))
        response.begin()
        return response.status, response.read(), True
    except http.client.IncompleteRead as error:
        return response.status, error.partial, False
    except (http.client.HTTPException, ValueError):
        return 0, came, False


class _Came:
    """What http.client needs of a socket."""

    def __init__(self, came: bytes) -> None:
        self._came = came

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._came)
