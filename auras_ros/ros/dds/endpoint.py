"""Writers and readers of CDR payloads: a gather write, and a take without a copy for large samples.

They carry bytes and never interpret them. A lock per endpoint lets any thread publish while another shuts
down; calls into libddsc release the GIL, for writes and for reads.
"""

from __future__ import annotations

import ctypes as ct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import library as dds
from . import typehash
from .participant import Participant, guid
from .qos import QoSProfile, dds_qos

_DATA = 2  # SDK_DATA: the serialised data, not only its key
_ANY_STATE = 0x7F
_HEADER_BYTES = 4
_PADDING = np.zeros(4, np.uint8)
# libddsc keeps samples up to 16 kB in a pool that is freed with the domain; those are copied out at once.
# Larger ones are plain memory, which may outlive the domain.
_COPY_BELOW_BYTES = 32 * 1024
_WRITERS_KEPT = 256


@dataclass(frozen=True)
class Received:
    """One payload: read-only bytes, the writer's local handle and its source time."""

    payload: memoryview
    publication_handle: int
    source_stamp_ns: int


class _Loan:
    """Keeps one sample of libddsc's alive for as long as an array views its memory."""

    __slots__ = ("__array_interface__", "_sample")

    def __init__(self, sample: int, address: int, size: int) -> None:
        self._sample = sample
        self.__array_interface__ = {"data": (address, True), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self, unref: Callable[[int], None] = dds.serdata_unref) -> None:
        unref(self._sample)


class _Endpoint:
    """What writer and reader share: an entity, its lock, its matched endpoints, its deletion."""

    # libddsc's calls for this kind of endpoint: create one, list its matched endpoints, describe one of them.
    _create: Any
    _matched: Any
    _describe: Any

    def __init__(
        self, participant: Participant, parent: int, topic: str, ros_type: str,
        profile: QoSProfile, extra_user_data: bytes, *, ignore_own_participant: bool = False,
    ) -> None:  # fmt: skip
        self.participant, self.topic, self.ros_type = participant, topic, ros_type
        self.lock = threading.Lock()
        self.closed = False
        user_data = extra_user_data + typehash.user_data(ros_type)
        with dds_qos(profile, user_data, ignore_own_participant=ignore_own_participant) as qos:
            ref = self._create(parent, participant.topic(topic, ros_type), qos, None)
        self.ref = dds.check(ref, f"{type(self).__name__.lower()} on {topic} of {ros_type}")
        self.gid = guid(self.ref)
        participant.register(self)

    def matched_count(self) -> int:
        """How many endpoints are matched with this one now."""
        return 0 if self.closed else max(0, int(self._matched(self.ref, None, 0)))

    def matched_handles(self) -> list[int]:
        """The local handles of those endpoints."""
        handles = (ct.c_uint64 * self.matched_count())()
        found = max(0, self._matched(self.ref, handles, len(handles)))
        return handles[:found]

    def of_matched(self, handle: int, what: Callable[[dds.Endpoint], bytes]) -> bytes:
        """`what` of one of those endpoints; empty if it no longer exists."""
        with self.lock:
            described = None if self.closed else self._describe(self.ref, handle)
            if not described:
                return b""
            try:
                return what(described.contents)
            finally:
                dds.free_endpoint(described)

    def close(self) -> None:
        """Delete the entity; waits for a running write or take, and a second call does nothing."""
        with self.lock:
            if not self.closed:
                self.closed = True
                dds.delete(self.ref)


class Writer(_Endpoint):
    """Writes CDR payloads on one topic; `extra_user_data` goes before the type hash (services put an id there)."""

    _create = dds.create_writer
    _matched, _describe = dds.get_matched_subscriptions, dds.get_matched_subscription_data

    def __init__(
        self, participant: Participant, topic: str, ros_type: str, profile: QoSProfile, extra_user_data: bytes = b""
    ) -> None:
        super().__init__(participant, participant.publisher, topic, ros_type, profile, extra_user_data)
        sertype = ct.c_void_p()
        dds.check(dds.get_entity_sertype(self.ref, ct.byref(sertype)), f"writer on {topic}")
        self._sertype = sertype

    def write(self, pieces: Sequence[Any]) -> None:
        """Publish one payload given in pieces (C-contiguous buffers): gathered by libddsc, padded to four bytes.

        Raises DdsError if the writer is closed or libddsc refuses the payload.
        """
        arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
        total = sum(array.size for array in arrays)
        if total <= _HEADER_BYTES:  # libddsc reads the first octet without checking that there is one
            raise dds.DdsError(f"publish on {self.topic}: a payload of {total} bytes holds no data")
        if pad := -total & 3:
            arrays.append(_PADDING[:pad])
            total += pad
        vector = (dds.Iov * len(arrays))(*[dds.Iov(a.__array_interface__["data"][0], a.size) for a in arrays])
        with self.lock:
            if self.closed:
                raise dds.DdsError(f"publish on {self.topic}: the publisher or its context is shut down")
            sample = dds.serdata_from_iov(self._sertype, _DATA, len(arrays), vector, total)
            if not sample:
                raise dds.DdsError(f"publish on {self.topic}: a payload of {total} bytes was refused")
            dds.check(dds.writecdr(self.ref, sample), f"publish on {self.topic}")


class Reader(_Endpoint):
    """Takes CDR payloads from one topic; `condition` is what a waitset watches for data."""

    _create = dds.create_reader
    _matched, _describe = dds.get_matched_publications, dds.get_matched_publication_data

    def __init__(
        self,
        participant: Participant,
        topic: str,
        ros_type: str,
        profile: QoSProfile,
        extra_user_data: bytes = b"",
        *,
        ignore_own_participant: bool = False,
    ) -> None:
        super().__init__(
            participant, participant.subscriber, topic, ros_type, profile, extra_user_data,
            ignore_own_participant=ignore_own_participant,
        )  # fmt: skip
        self.condition = dds.check(dds.create_readcondition(self.ref, _ANY_STATE), f"reader on {topic}")
        self._slot, self._info = (ct.c_void_p * 1)(), (dds.SampleInfo * 1)()
        self._writers: dict[int, bytes] = {}  # handle -> gid of the newest writers that were asked for

    def take(self) -> Received | None:
        """The next payload, or None if there is none (or the reader is closed)."""
        with self.lock:
            while not self.closed and dds.takecdr(self.ref, self._slot, 1, self._info, _ANY_STATE) > 0:
                sample, info = self._slot[0] or 0, self._info[0]
                if not info.valid_data:  # a writer disappeared: no payload
                    dds.serdata_unref(sample)
                    continue
                return Received(_payload(sample), info.publication_handle, info.source_timestamp)
        return None

    def dropped_bytes(self) -> int:
        """How many bytes came for this reader's matched writers and were dropped, because they had come before or were
        taken for old; 0 if the reader is closed."""
        with self.lock:
            statistics = None if self.closed else dds.create_statistics(self.ref)
            if not statistics:
                return 0
            try:
                dds.check(dds.refresh_statistics(statistics), f"statistics of {self.topic}")
                dropped = dds.lookup_statistic(statistics, b"discarded_bytes")
                return int(dropped.contents.u64) if dropped else 0
            finally:
                dds.delete_statistics(statistics)

    def writer_gid(self, publication_handle: int) -> bytes:
        """The 16 bytes that identify a writer; empty if it no longer exists and its gid is not kept from before."""
        known = self._writers.get(publication_handle)
        if known is None:
            known = self.of_matched(publication_handle, lambda writer: bytes(writer.key))
            if known:
                if len(self._writers) >= _WRITERS_KEPT:
                    del self._writers[next(iter(self._writers))]
                self._writers[publication_handle] = known
        return known


def _payload(sample: int) -> memoryview:
    vector, size = dds.Iov(), dds.serdata_size(sample)
    dds.serdata_unref(dds.serdata_to_ref(sample, 0, size, ct.byref(vector)))  # takeCDR's own reference remains
    if size < _COPY_BELOW_BYTES:
        data = ct.string_at(vector.base, size)
        dds.serdata_unref(sample)
        return memoryview(data)
    return memoryview(np.asarray(_Loan(sample, vector.base, size)))  # type: ignore[arg-type]
