"""Services and clients on rmw_cyclonedds' wire: 16 bytes {u64 client, i64 sequence} before request and reply.

A service answers only when the client's reply reader is matched, as discovery is not symmetric; until then the
answer waits, and nobody waits for it. A foreign, short or huge payload is ignored and counted. Parameter and lifecycle
services can be built on this; none is here.
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
from .endpoint import Reader, Writer
from .events import EventHandler, PublisherEventCallbacks
from .future import Future
from .logger import RcutilsLogger
from .messages import deserialize, serialize
from .participant import Participant
from .pubsub import LOG_PERIOD_S, Ignored
from .qos import QoSProfile, qos_profile_services_default

_IDENTITY = struct.Struct("<Qq")
_MAX_REQUEST_BYTES = 256 * 1024  # looked at before anything is read: what a request costs is bounded
_REPLY_PATIENCE_S = 1.0  # how long an answer waits for its client's reader
_MAX_WAITING = 32  # answers that wait; the oldest gives way
# Answers that libddsc keeps for readers which do not acknowledge them, however deep the requests' queue: it makes a
# writer wait once they are many bytes.
_MAX_UNREAD = qos_profile_services_default.depth
_POLL_S = 0.002


def _announced(kind: str) -> bytes:
    return f"{kind}=".encode() + ".".join(f"{octet:x}" for octet in uuid.uuid4().bytes).encode() + b";"


def _join(identity: bytes, pieces: list[Any]) -> list[Any]:
    first = bytes(pieces[0])
    return [first[: len(HEADER)] + identity + first[len(HEADER) :], *pieces[1:]]


def _split(payload: memoryview) -> tuple[bytes, bytes]:
    """(identity, CDR) of a request or reply; the 16 bytes keep CDR's eight-byte alignment."""
    end = len(HEADER) + _IDENTITY.size
    if len(payload) < end:
        raise CdrError(f"{len(payload)} bytes, too short for a service's header")
    return bytes(payload[len(HEADER) : end]), bytes(payload[: len(HEADER)]) + bytes(payload[end:])


def _answers_qos(qos: QoSProfile) -> QoSProfile:
    bounded = copy.copy(qos)
    bounded.depth = min(qos.depth, _MAX_UNREAD)
    return bounded


def _client_id(data: bytes) -> bytes:
    """The clientid in an endpoint's user data, empty where it has none."""
    return next((part for part in data.split(b";") if part.startswith(b"clientid=")), b"")


@dataclass(frozen=True)
class _Waiting:
    """An answer whose client is there and has no matched reader yet."""

    client: bytes
    pieces: list[Any]
    until_s: float


class Service:
    """Answers requests with `callback(request, response) -> response`; it never waits for a client.

    `on_arrival()` is called for whatever comes, before anything of it is read: where a request is a word that counts
    even if it cannot be read. rclpy has no such thing.
    """

    on_arrival: Callable[[], object] | None = None

    def __init__(
        self, participant: Participant, srv_type: Any, name: str,
        callback: Callable[[Any, Any], Any], qos: QoSProfile, logger: RcutilsLogger,
    ) -> None:  # fmt: skip
        self.srv_type, self.srv_name, self.callback = srv_type, name, callback
        request_topic, reply_topic = names.dds_service(name)
        identity = _announced("serviceid")
        self._request_type, self._reply_type = srv_type.Request._ros_type, srv_type.Response._ros_type
        self.reader = Reader(participant, request_topic, self._request_type, qos, identity)
        self.writer = Writer(participant, reply_topic, self._reply_type, _answers_qos(qos), identity)
        self.entity = self.reader.condition
        self._ignored = Ignored(name, logger)
        self._logger = logger
        self._waiting: deque[_Waiting] = deque()
        matched = PublisherEventCallbacks(matched=lambda _: self._send_waiting(), use_default_callbacks=False)
        self.events = EventHandler(self.writer, matched, logger)

    @property
    def closed(self) -> bool:
        return self.reader.closed

    @property
    def ignored_count(self) -> int:
        return self._ignored.count

    def execute(self) -> None:
        """Answer one request; the callback's exceptions propagate, a wrong return type is a TypeError."""
        received = self.reader.take()
        if received is None:
            return
        if self.on_arrival is not None:
            self.on_arrival()
        try:
            if len(received.payload) > _MAX_REQUEST_BYTES:
                raise CdrError(f"a request may have {_MAX_REQUEST_BYTES}")
            identity, cdr = _split(received.payload)
            request = deserialize(cdr, self._request_type)
        except CdrError as error:
            self._ignored.add(received, error)
            return
        response = self.callback(request, self.srv_type.Response())
        if not isinstance(response, self.srv_type.Response):
            raise TypeError(f"service {self.srv_name}: the callback returned {type(response).__name__}, not a response")
        if self.closed:
            return
        client = _client_id(
            _matched_user_data(dds.get_matched_publication_data, self.reader, received.publication_handle)
        )
        pieces = _join(identity, serialize(response))
        self._waiting.append(_Waiting(client, pieces, time.monotonic() + _REPLY_PATIENCE_S))
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send the answers whose client is matched by now, and those of clients of which nothing can be known."""
        if self.closed or not self._waiting:
            return
        matched, now_s = self._reply_readers(), time.monotonic()
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            if not answer.client or answer.client in matched:  # empty: another vendor's client, or one that is gone
                self.writer.write(answer.pieces)
            elif now_s < answer.until_s:
                self._waiting.append(answer)
            else:
                self._say_lost("its client's reader never came")
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft()
            self._say_lost(f"more than {_MAX_WAITING} wait for clients that do not read")

    def _say_lost(self, why: str) -> None:
        self._logger.warning(
            f"service {self.srv_name}: an answer was dropped: {why}", throttle_duration_sec=LOG_PERIOD_S
        )

    def _reply_readers(self) -> set[bytes]:
        """The clients whose reply readers are matched."""
        count = max(0, dds.get_matched_subscriptions(self.writer.ref, None, 0))
        handles = (ct.c_uint64 * count)()
        found = max(0, dds.get_matched_subscriptions(self.writer.ref, handles, count))
        lookup = dds.get_matched_subscription_data
        return {_client_id(_matched_user_data(lookup, self.writer, each)) for each in handles[: min(found, count)]}

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


def _matched_user_data(lookup: Any, endpoint: Reader | Writer, handle: int) -> bytes:
    with endpoint.lock:
        data = None if endpoint.closed else lookup(endpoint.ref, handle)
        if not data:
            return b""
        try:
            return dds.user_data_of(data.contents.qos)
        finally:
            dds.free_endpoint(data)


class Client:
    """Calls a service; every pending call gets its own reply, whatever their order."""

    def __init__(
        self, participant: Participant, srv_type: Any, name: str, qos: QoSProfile, logger: RcutilsLogger
    ) -> None:
        self.srv_type, self.srv_name = srv_type, name
        request_topic, reply_topic = names.dds_service(name)
        identity = _announced("clientid")
        self._reply_type = srv_type.Response._ros_type
        self.reader = Reader(participant, reply_topic, self._reply_type, qos, identity)
        self.writer = Writer(participant, request_topic, srv_type.Request._ros_type, qos, identity)
        self.entity = self.reader.condition
        handle = ct.c_uint64()
        dds.check(dds.get_instance_handle(self.writer.ref, ct.byref(handle)), f"client of {name}")
        self._id = handle.value
        self._lock = threading.Lock()
        self._sequence = 0
        self._pending: dict[int, Future] = {}
        self._ignored = Ignored(name, logger)

    @property
    def closed(self) -> bool:
        return self.reader.closed

    @property
    def ignored_count(self) -> int:
        return self._ignored.count

    def service_is_ready(self) -> bool:
        """True where a server's request reader and reply writer are both matched."""
        return self.writer.matched_count() > 0 and self.reader.matched_count() > 0

    def wait_for_service(self, timeout_sec: float | None = None) -> bool:
        """Wait until a server is there; False where the time is over first or the client is closed."""
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
        """Send a request and wait for the reply while another thread spins. TimeoutError where none comes."""
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

    def execute(self) -> None:
        """Take one reply; those of other clients arrive here too and are passed over."""
        received = self.reader.take()
        if received is None:
            return
        try:
            identity, cdr = _split(received.payload)
            client, sequence = _IDENTITY.unpack(identity)
            if client != self._id:
                return
            response = deserialize(cdr, self._reply_type)
        except CdrError as error:
            self._ignored.add(received, error)
            return
        with self._lock:
            future = self._pending.pop(sequence, None)
        if future is not None:
            future.set_result(response)

    def close(self) -> None:
        """Close both endpoints and cancel what is still pending."""
        self.reader.close()
        self.writer.close()
        with self._lock:
            pending, self._pending = list(self._pending.values()), {}
        for future in pending:
            future.cancel()
