"""Services and clients on rmw_cyclonedds' wire: 16 bytes {u64 client, i64 sequence} before request and reply.

A service answers only when the client's reply reader is matched, as discovery is not symmetric. A foreign or
short payload is ignored and counted. Parameter and lifecycle services can be built on this; none is here.
"""

from __future__ import annotations

import ctypes as ct
import struct
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from . import library as dds
from . import names
from .cdr import HEADER, CdrError
from .endpoint import Reader, Received, Writer
from .future import Future
from .logger import RcutilsLogger
from .messages import deserialize, serialize
from .participant import Participant
from .pubsub import Ignored
from .qos import QoSProfile

_IDENTITY = struct.Struct("<Qq")
_REPLY_MATCH_TIMEOUT_S = 0.1
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


def _client_id(data: bytes) -> bytes:
    """The clientid in an endpoint's user data, empty where it has none."""
    return next((part for part in data.split(b";") if part.startswith(b"clientid=")), b"")


class Service:
    """Answers requests with `callback(request, response) -> response`."""

    def __init__(
        self, participant: Participant, srv_type: Any, name: str,
        callback: Callable[[Any, Any], Any], qos: QoSProfile, logger: RcutilsLogger,
    ) -> None:  # fmt: skip
        self.srv_type, self.srv_name, self.callback = srv_type, name, callback
        request_topic, reply_topic = names.dds_service(name)
        identity = _announced("serviceid")
        self._request_type, self._reply_type = srv_type.Request._ros_type, srv_type.Response._ros_type
        self.reader = Reader(participant, request_topic, self._request_type, qos, identity)
        self.writer = Writer(participant, reply_topic, self._reply_type, qos, identity)
        self.entity = self.reader.condition
        self._ignored = Ignored(name, logger)
        self._logger = logger

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
        try:
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
        if not self._await_reply_reader(received):
            self._logger.warning(f"service {self.srv_name}: a client went away before its answer")
            return
        self.writer.write(_join(identity, serialize(response)))

    def _await_reply_reader(self, received: Received) -> bool:
        """False where the requesting client is known to have a reply reader that is still not matched."""
        lookup = dds.get_matched_publication_data
        wanted = _client_id(_matched_user_data(lookup, self.reader, received.publication_handle))
        if not wanted:  # another vendor's client, or one that is gone: answer at once
            return True
        deadline = time.monotonic() + _REPLY_MATCH_TIMEOUT_S
        while not self._has_reply_reader(wanted):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _has_reply_reader(self, wanted: bytes) -> bool:
        count = max(0, dds.get_matched_subscriptions(self.writer.ref, None, 0))
        handles = (ct.c_uint64 * count)()
        found = max(0, dds.get_matched_subscriptions(self.writer.ref, handles, count))
        return any(
            _client_id(_matched_user_data(dds.get_matched_subscription_data, self.writer, handle)) == wanted
            for handle in handles[: min(found, count)]
        )

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
