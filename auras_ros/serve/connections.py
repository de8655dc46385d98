"""What a client may do before its request is there: how large and how slow a head may be, and how many connections.

Everything here comes before the token, so nothing that a client sends may cost more than it is counted for. uvicorn's
protocol parses and answers; this one counts the bytes of a head as they arrive, gives every head a deadline, and gives
up the oldest idle connection when there are too many. It never gives up one with a request in it: a proxy is one peer
with many connections, so peers are not counted.

A body has its bounds in `bodies`, and is counted here only where its chunks are more than what they carry.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from auras_ros.serve.errors import SERVER, ApiError
from auras_ros.serve.metrics import ServerMetrics

URL_BYTES = 8 << 10
HEAD_BYTES = 64 << 10  # request line and headers of a request
HEADERS = 100  # of a request, with the trailers of a chunked body
HEAD_S = 10.0  # from a connection, or the first byte of its next request, to the end of the headers
FRAMING_BYTES = 64 << 10  # what the chunks of a body may have beside it, and beyond that as much as it is long
PIPELINED = 8  # requests that wait in one connection for the answer to an earlier one
UNREAD_S = 60.0  # a client that takes nothing of its answer for so long has gone
LINGER_S, LINGER_BYTES = 2.0, 256 << 10  # what is still read, and forgotten, when a client has been refused
CLOSE_S = 10.0  # for what is left of an answer to be taken once the connection is being closed
SLICE_BYTES = 8 << 10  # of a head, given to the parser at once
BODY_HEADERS = (b"content-length", b"transfer-encoding")
SLOWEST_S = 1.0  # a body that has come for less than this has no rate yet

CONNECTIONS = 1024
OTHER_DESCRIPTORS = 256  # files, models and adapters of the process
ACCEPTED_AT_ONCE = 1024  # connections that the kernel keeps until they are accepted, all of them at once


class RefusedHeadError(Exception):
    """Stops the parser; the refusal is the protocol's."""


class OpenConnections:
    """All connections of a server, in the order in which they became idle."""

    def __init__(self, limit: int, metrics: ServerMetrics) -> None:
        self.limit = limit
        self.metrics = metrics
        # The server ends; what the kernel has still accepted is closed.
        self.is_closing = False
        self._all = set[BoundedProtocol]()
        # No request is in them: they send nothing, or headers, or have been refused.
        self._idle = dict[BoundedProtocol, None]()
        # Their headers are there, and their body is not.
        self._receiving = dict[BoundedProtocol, None]()

    def add(self, connection: BoundedProtocol) -> bool:
        """Gives up another one if there are too many. Returns whether there is room for this one."""
        if len(self._all) >= self.limit and not self._give_up_one():
            return False
        self._all.add(connection)
        self._count()
        return True

    def remove(self, connection: BoundedProtocol) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)
        self._receiving.pop(connection, None)
        self._count()

    def set_idle(self, connection: BoundedProtocol) -> None:
        self._receiving.pop(connection, None)
        if connection in self._all:
            self._idle.setdefault(connection)

    def set_receiving(self, connection: BoundedProtocol) -> None:
        self._idle.pop(connection, None)
        if connection in self._all:
            self._receiving.setdefault(connection)

    def set_busy(self, connection: BoundedProtocol) -> None:
        self._idle.pop(connection, None)
        self._receiving.pop(connection, None)

    def _give_up_one(self) -> bool:
        """The oldest idle connection; where none is idle, the one whose body comes slowest."""
        if self._idle:
            connection = next(iter(self._idle))
            connection.transport.abort()
        elif self._receiving:
            connection = self._slowest()
            text = f"the server has {self.limit} connections, and this request came slowest"
            connection.refuse(ApiError(503, text, code="connections_full", kind=SERVER))
            connection.transport.close()
        else:
            return False
        self.remove(connection)
        self.metrics.given_up_connections += 1
        return True

    def _slowest(self) -> BoundedProtocol:
        now_s = time.monotonic()
        rated = [connection for connection in self._receiving if now_s - connection.body_began_s >= SLOWEST_S]
        if not rated:
            return next(iter(self._receiving))
        return min(rated, key=lambda connection: connection.body_bytes / (now_s - connection.body_began_s))

    def _count(self) -> None:
        self.metrics.connections = len(self._all)


def connection_limits() -> tuple[int, int]:
    """How many connections a server may have, and how many the kernel may keep for it.

    CONNECTIONS and ACCEPTED_AT_ONCE, or fewer where the process may not have so many descriptors. Raises its soft limit
    (RLIMIT_NOFILE) if need be."""
    wanted = OTHER_DESCRIPTORS + CONNECTIONS + ACCEPTED_AT_ONCE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return CONNECTIONS, ACCEPTED_AT_ONCE
    each = max((soft - OTHER_DESCRIPTORS) // 2, soft // 4, 1)
    return min(each, CONNECTIONS), min(each, ACCEPTED_AT_ONCE)


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, connections: OpenConnections, **given: Any) -> None:
        super().__init__(**given)
        self._connections = connections
        # What the parser has now.
        self._part_bytes = 0
        # Of the head that arrives. False before its first byte.
        self._is_in_head = False
        self._head_bytes = 0
        self._header_count = 0
        # Of the body that arrives.
        self._is_in_body = False
        self.body_began_s = 0.0
        self.body_bytes = 0
        self._sent_body_bytes = 0  # with the lengths, extensions and trailers of its chunks
        # Why the parser was stopped.
        self._refusal: ApiError | None = None
        # No more is parsed; the connection is closed after the answers that are due.
        self._is_stopped = False
        # The refusal is sent; what still comes is forgotten.
        self._is_refused = False
        self._forgotten_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._connections.is_closing:
            transport.abort()
            return
        if not self._connections.add(self):
            text = f"the server has {self._connections.limit} connections, and a request in each of them"
            self.refuse(ApiError(503, text, code="connections_full", kind=SERVER))
            transport.close()
            return
        self._connections.set_idle(self)
        self._head_timer = self.loop.call_later(HEAD_S, self._end_slow_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        for timer in (self._head_timer, self._close_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The server ends: whoever has no request in it is closed at once."""
        self._connections.is_closing = True
        if self._is_busy():
            self.cycle.keep_alive = False
            return
        if not self._is_idle():
            self.refuse(ApiError(503, "the server is closing", code="engine_closed", kind=SERVER))
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    # What arrives

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._forgotten_bytes += len(data)
            if self._forgotten_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        rest = memoryview(data)
        while rest and not self._is_stopped and not self._is_refused and not self.transport.is_closing():
            if not self._is_in_body and not self._is_in_head:
                self._begin_head()
            part = rest[: min(SLICE_BYTES, HEAD_BYTES - self._head_bytes)] if self._is_in_head else rest
            rest = rest[len(part) :]
            self._parse(part)

    def _parse(self, part: memoryview) -> None:
        self._part_bytes = len(part)
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade:
            self._stop()  # the request is answered as if it had not asked for another protocol
        except httptools.HttpParserError:
            if not self._is_stopped:
                self.refuse(self._refusal or ApiError(400, "Invalid HTTP request received."))
        else:
            self._check_sizes()

    def _check_sizes(self) -> None:
        if self._is_in_head:
            self._head_bytes += self._part_bytes
            if self._head_bytes >= HEAD_BYTES:
                self.refuse(ApiError(431, f"the headers are larger than {HEAD_BYTES} bytes", code="headers_too_large"))
        elif self._is_in_body:
            self._sent_body_bytes += self._part_bytes
            if self._sent_body_bytes > 2 * self.body_bytes + FRAMING_BYTES + SLICE_BYTES:
                text = f"the chunks' lengths, extensions and trailers are {FRAMING_BYTES} bytes larger than the body"
                self.refuse(ApiError(413, text, code="body_too_large"))

    def _begin_head(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        self._unset_keepalive_if_required()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._end_slow_head)

    def _end_slow_head(self) -> None:
        self._head_timer = None
        if self.transport.is_closing() or self._is_refused:
            return
        if self._is_in_head:
            self.refuse(ApiError(408, f"the headers did not end within {HEAD_S:g} s", code="headers_too_slow"))
        else:
            self.transport.close()

    # What the parser says

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            self._stop()
            raise RefusedHeadError
        super().on_message_begin()
        self._header_count = 0
        if not self._is_in_head:  # it follows another request in the same part
            self._begin_head()
            self._head_bytes = -self._part_bytes

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > URL_BYTES:
            self._refuse_head(ApiError(414, f"the URL is longer than {URL_BYTES} bytes", code="url_too_long"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > HEADERS:
            self._refuse_head(ApiError(431, f"there are more than {HEADERS} headers", code="headers_too_large"))
        if not self._is_in_body:  # trailers are counted, and mean nothing
            super().on_header(name, value)

    def _refuse_head(self, error: ApiError) -> None:
        self._refusal = error
        raise RefusedHeadError

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and any(name in BODY_HEADERS for name, _ in self.headers):
            # The parser would take the body for the other protocol.
            text = "Upgrade: another protocol is not taken up; send a request with a body without this header"
            self._refuse_head(ApiError(400, text, code="upgrade_not_taken"))
        self._is_in_head = False
        self._is_in_body = True
        self.body_began_s = time.monotonic()
        self.body_bytes = 0
        self._sent_body_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().on_headers_complete()
        self._say_state()

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        super().on_message_complete()
        self._say_state()

    # What is answered

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._say_state()
        if self._is_in_head:
            self._unset_keepalive_if_required()  # the head has a deadline of its own
        if self._is_idle() and (self._is_stopped or self.cycle.more_body):  # its body was not read to the end
            self.transport.close()
        if self.transport.is_closing() and self._close_timer is None:
            self._close_timer = self.loop.call_later(CLOSE_S, self.transport.abort)

    def refuse(self, error: ApiError) -> None:
        """Answers what is no request, or not whole, and closes. Earlier requests of the connection are answered first,
        and this one then only by the end."""
        if self._is_refused or self.transport.is_closing():
            return
        self._connections.metrics.refused[str(error.status)] += 1
        if self._is_busy():
            self._stop()
            return
        self._is_refused = True
        if not self._is_idle():
            if self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # whoever reads its body is told that the client has gone
            self.cycle.message_event.set()
        self._connections.set_idle(self)
        self._send_refusal(error)
        self.flow.resume_reading()
        self._close_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def _send_refusal(self, error: ApiError) -> None:
        headers = {**error.headers, "Content-Length": str(len(error.content)), "Connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.transport.write(STATUS_LINE[error.status] + lines.encode() + b"\r\n" + error.content)
        self.transport.write_eof()

    def _stop(self) -> None:
        """Parses no more, and closes when what is due has been answered."""
        self._is_stopped = True
        if self._is_idle():
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    # Its state

    def _is_idle(self) -> bool:
        """No request is in it."""
        return not self.pipeline and (self.cycle is None or self.cycle.response_complete)

    def _is_busy(self) -> bool:
        """A whole request is in it, which is not answered yet."""
        return not self._is_idle() and (bool(self.pipeline) or not self.cycle.more_body)

    def _say_state(self) -> None:
        if self._is_idle():
            self._connections.set_idle(self)
        elif self._is_busy():
            self._connections.set_busy(self)
        else:
            self._connections.set_receiving(self)
