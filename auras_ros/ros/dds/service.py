"""Services and clients as on rmw_cyclonedds' wire: 16 bytes {u64 client, i64 sequence} before request and reply.

A service answers only once the client's reply reader is matched, because discovery is not symmetric; until then the
answer is queued, and nothing blocks. An unknown, short or huge payload is ignored and counted. Parameter and lifecycle
services are built on this, elsewhere.
"""

from __future__ import annotations

import copy
import ctypes as ct
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import library as dds
from . import names
from .cdr import HEADER, CdrError
from .endpoint import Reader, Received, Writer
from .events import EventHandler, PublisherEventCallbacks
from .future import Future
from .messages import deserialize, serialize
from .pubsub import Owner, Receiver
from .qos import QoSProfile, qos_profile_services_default

_IDENTITY = struct.Struct("<Qq")
_MAX_REQUEST_BYTES = 256 * 1024  # checked before decoding: the cost of a request is bounded
_REPLY_PATIENCE_S = 1.0  # how long an answer is queued for its client's reader
_MAX_WAITING = 32  # queued answers; if there are more, the oldest is dropped
# Answers that libddsc keeps for readers that do not acknowledge them, however deep the requests' queue: with too many
# bytes of them it would block the writer.
_MAX_UNREAD = qos_profile_services_default.depth
_POLL_S = 0.002


def _announced(kind: str) -> bytes:
    return f"{kind}=".encode() + ".".join(f"{octet:x}" for octet in uuid.uuid4().bytes).encode() + b";"


def _join(identity: bytes, pieces: list[Any]) -> list[Any]:
    first = bytes(pieces[0])
    return [first[: len(HEADER)] + identity + first[len(HEADER) :], *pieces[1:]]


def _split(payload: memoryview) -> tuple[bytes, bytes]:
    """(identity, CDR) of a request or reply; the 16 bytes preserve CDR's eight-byte alignment."""
    end = len(HEADER) + _IDENTITY.size
    if len(payload) < end:
        raise CdrError(f"{len(payload)} bytes, too short for a service's header")
    return bytes(payload[len(HEADER) : end]), bytes(payload[: len(HEADER)]) + bytes(payload[end:])


def _answers_qos(qos: QoSProfile) -> QoSProfile:
    bounded = copy.copy(qos)
    bounded.depth = min(qos.depth, _MAX_UNREAD)
    return bounded


def _client_id(endpoint: dds.Endpoint) -> bytes:
    """The clientid in an endpoint's user data, empty if it has none."""
    parts = dds.user_data_of(endpoint.qos).split(b";")
    return next((part for part in parts if part.startswith(b"clientid=")), b"")


@dataclass(frozen=True)
class _Waiting:
    """An answer whose client exists and has no matched reader yet."""

    client: bytes
    pieces: list[Any]
    until_s: float


class _ServiceEnd(Receiver):
    """What services and clients share: a reader and a writer that announce one identity.

    kind: 'serviceid' or 'clientid'. reads, writes: DDS topic, message class and QoS.
    """

    def __init__(
        self, owner: Owner, srv_type: Any, name: str, kind: str,
        reads: tuple[str, Any, QoSProfile], writes: tuple[str, Any, QoSProfile],
    ) -> None:  # fmt: skip
        self.srv_type, self.srv_name = srv_type, name
        identity = _announced(kind)
        topic, message, qos = reads
        self.reader = Reader(owner.participant, topic, message._ros_type, qos, identity)
        topic, message, qos = writes
        self.writer = Writer(owner.participant, topic, message._ros_type, qos, identity)
        super().__init__(owner, self.reader, name)

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


class Service(_ServiceEnd):
    """Answers requests with `callback(request, response) -> response`; it never waits for a client.

    `on_arrival()` is called for every payload, before it is decoded, for a service whose requests count even if they
    cannot be decoded. rclpy has nothing like it.
    """

    on_arrival: Callable[[], object] | None = None

    def __init__(
        self, owner: Owner, srv_type: Any, name: str, callback: Callable[[Any, Any], Any], qos: QoSProfile
    ) -> None:
        requests, answers = names.dds_service(name)
        received, sent = (requests, srv_type.Request, qos), (answers, srv_type.Response, _answers_qos(qos))
        super().__init__(owner, srv_type, name, "serviceid", received, sent)
        self.callback = callback
        self._waiting: deque[_Waiting] = deque()
        matched = PublisherEventCallbacks(matched=lambda _: self._send_waiting(), use_default_callbacks=False)
        self.events = EventHandler(self.writer, matched, owner.logger)

    def _read(self, payload: memoryview) -> tuple[bytes, Any]:
        """The identity of the call, and the request."""
        if self.on_arrival is not None:
            self.on_arrival()
        if len(payload) > _MAX_REQUEST_BYTES:
            raise CdrError(f"a request may have at most {_MAX_REQUEST_BYTES}")
        identity, cdr = _split(payload)
        return identity, deserialize(cdr, self.srv_type.Request._ros_type)

    def _handle(self, content: tuple[bytes, Any], received: Received) -> None:
        """Answer the request. Raises TypeError if the callback returns anything but a response."""
        identity, request = content
        response = self.callback(request, self.srv_type.Response())
        if not isinstance(response, self.srv_type.Response):
            raise TypeError(f"service {self.srv_name}: the callback returned {type(response).__name__}, not a response")
        if self.closed:
            return
        client = self.reader.of_matched(received.publication_handle, _client_id)
        pieces = _join(identity, serialize(response))
        self._waiting.append(_Waiting(client, pieces, time.monotonic() + _REPLY_PATIENCE_S))
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send the answers whose client is matched now, and those whose client cannot be identified."""
        if self.closed or not self._waiting:
            return
        matched = {self.writer.of_matched(each, _client_id) for each in self.writer.matched_handles()}
        now_s = time.monotonic()
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            if not answer.client or answer.client in matched:  # empty: another vendor's client, or a deleted one
                self.writer.write(answer.pieces)
            elif now_s < answer.until_s:
                self._waiting.append(answer)
            else:
                self._say_lost("its client's reader was not found in time")
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft()
            self._say_lost(f"more than {_MAX_WAITING} are queued for clients that do not read")

    def _say_lost(self, why: str) -> None:
        if line := self._lines.line("answers", f"service {self.srv_name}: an answer was dropped: {why}"):
            self._logger.warning(line)


class Client(_ServiceEnd):
    """Calls a service; every pending call gets its own reply, in whatever order they arrive."""

    def __init__(self, owner: Owner, srv_type: Any, name: str, qos: QoSProfile) -> None:
        requests, answers = names.dds_service(name)
        received, sent = (answers, srv_type.Response, qos), (requests, srv_type.Request, qos)
        super().__init__(owner, srv_type, name, "clientid", received, sent)
        handle = ct.c_uint64()
        dds.check(dds.get_instance_handle(self.writer.ref, ct.byref(handle)), f"client of {name}")
        self._id = handle.value
        self._lock = threading.Lock()
        self._sequence = 0
        self._pending: dict[int, Future] = {}

    def service_is_ready(self) -> bool:
        """Whether a server's request reader and reply writer are both matched."""
        return self.writer.matched_count() > 0 and self.reader.matched_count() > 0

    def wait_for_service(self, timeout_sec: float | None = None) -> bool:
        """Wait for a server. Returns False if the time is over first or the client is closed."""
        deadline = float("inf") if timeout_sec is None else time.monotonic() + timeout_sec
        while not self.service_is_ready():
            if self.closed or time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def call_async(self, request: Any) -> Future:
        """Send a request; the executor that spins the node sets the future's result."""
        if not isinstance(request, self.srv_type.Request):
            raise TypeError(f"client of {self.srv_name}: expected a request, got {type(request).__name__}")
        future = Future()
        with self._lock:
            self._sequence += 1
            sequence = self._sequence
            self._pending[sequence] = future
        try:
            self.writer.write(_join(_IDENTITY.pack(self._id, sequence), serialize(request)))
        except BaseException:
            with self._lock:
                del self._pending[sequence]
            raise
        return future

    def call(self, request: Any, timeout_sec: float | None = None) -> Any:
        """Send a request and wait for the reply while another thread spins. Raises TimeoutError if none comes."""
        future, done = self.call_async(request), threading.Event()
        future.add_done_callback(lambda _: done.set())
        if not done.wait(timeout_sec):
            self.remove_pending_request(future)
            raise TimeoutError(f"service {self.srv_name}: no reply within {timeout_sec} s")
        return future.result()

    def remove_pending_request(self, future: Future) -> None:
        """Forget a call; its reply will be ignored."""
        with self._lock:
            self._pending = {sequence: kept for sequence, kept in self._pending.items() if kept is not future}

    def _read(self, payload: memoryview) -> tuple[int, Any] | None:
        """The number of the call and its reply; None for another client's reply, which arrives here too."""
        identity, cdr = _split(payload)
        client, sequence = _IDENTITY.unpack(identity)
        return (sequence, deserialize(cdr, self.srv_type.Response._ros_type)) if client == self._id else None

    def _handle(self, content: tuple[int, Any] | None, received: Received) -> None:
        if content is None:
            return
        sequence, response = content
        with self._lock:
            future = self._pending.pop(sequence, None)
        if future is not None:
            future.set_result(response)

    def close(self) -> None:
        """Close both endpoints and cancel the pending calls."""
        super().close()
        with self._lock:
            pending, self._pending = list(self._pending.values()), {}
        for future in pending:
            future.cancel()
