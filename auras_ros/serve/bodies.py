"""Bodies that arrive: how large each may be, how slowly it may come, and how much memory they take together.

A body takes none of the engine's places before it is there, so that slow clients keep nobody out. What it takes instead
is memory, which is bounded for all bodies together: where they are too large, the one that came slowest is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from auras_ros.serve.errors import ApiError
from auras_ros.serve.pieces import Receive

GRACE_S = 10.0  # from the end of the headers; a body of so many seconds more must have come at BYTES_PER_S
BYTES_PER_S = 4096  # on the average, GRACE_S left out: less than the slowest Wi-Fi has
TOGETHER_BYTES = 128 << 20  # bodies that arrive or are prepared, or two of the largest that one may have
SLOWEST_S = 1.0  # a body that has come for less than this has no rate yet


class ArrivingBody:
    """One body, from its headers until its request is the engine's or refused."""

    def __init__(self, memory: BodyMemory) -> None:
        self.is_whole = False
        self.began_s = time.monotonic()
        self.size = 0
        self._memory = memory
        self._data = bytearray()
        self._refusal: ApiError | None = None

    async def read(self, receive: Receive, limit: int, announced: str | None) -> bytes:
        """The whole body. limit: bytes that it may have. announced: its Content-Length. Raises ApiError for one that is
        too large, too slow, or not there to its end."""
        too_large = ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")
        if announced is not None and announced.isdigit() and int(announced) > limit:
            raise too_large
        more = True
        while more:
            deadline_s = self.began_s + GRACE_S + self.size / BYTES_PER_S
            try:
                message = await asyncio.wait_for(receive(), deadline_s - time.monotonic())
            except asyncio.TimeoutError as error:  # its own class until Python 3.11
                raise self._refusal or ApiError(
                    408,
                    f"the body came too slowly: {self.size} bytes in {time.monotonic() - self.began_s:.0f} s, expected "
                    f"{BYTES_PER_S} bytes a second after {GRACE_S:g} s",
                    code="body_too_slow",
                ) from error
            if self._refusal is not None:
                raise self._refusal
            if message["type"] == "http.disconnect":
                raise ApiError(499, "the client has gone")
            part = message.get("body", b"")
            if self.size + len(part) > limit:
                raise too_large
            self._data += part
            self._memory.add(len(part))
            self.size += len(part)
            self._memory.make_room()
            if self._refusal is not None:
                raise self._refusal
            more = bool(message.get("more_body", False))
        self.is_whole = True
        whole = bytes(self._data)
        self._data.clear()
        return whole

    def give_up(self, error: ApiError) -> None:
        """Forgets what has come. Its reader is told when more comes, or when it is too late."""
        self._refusal = error
        self.forget()

    def forget(self) -> None:
        """Counts no more."""
        self._data.clear()
        self._memory.add(-self.size)
        self.size = 0


class BodyMemory:
    """All bodies that arrive, and those that are being prepared."""

    def __init__(self, largest_body: int) -> None:
        """largest_body: bytes that one may have."""
        self.limit = max(TOGETHER_BYTES, 2 * largest_body)
        self.total_bytes = 0
        self._bodies = set[ArrivingBody]()

    @contextmanager
    def body(self) -> Iterator[ArrivingBody]:
        """One that counts meanwhile."""
        body = ArrivingBody(self)
        self._bodies.add(body)
        try:
            yield body
        finally:
            body.forget()
            self._bodies.discard(body)

    def add(self, size: int) -> None:
        """Bytes that have come, or below 0 those that are forgotten."""
        self.total_bytes += size

    def make_room(self) -> None:
        """Gives up those that came slowest until the others are within the limit. A whole one is never given up."""
        while self.total_bytes > self.limit:
            arriving = [body for body in self._bodies if not body.is_whole and body.size]
            if not arriving:
                return
            now_s = time.monotonic()
            slowest = min(arriving, key=lambda body: body.size / max(now_s - body.began_s, SLOWEST_S))
            text = f"the bodies of all requests together are larger than {self.limit} bytes, and this one came slowest"
            slowest.give_up(ApiError(429, text, code="bodies_full", kind="rate_limit_error"))
