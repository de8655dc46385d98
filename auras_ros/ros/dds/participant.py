"""One DDS participant per context: its domain, its topics, and its deletion.

Everything is deleted here, endpoints first, so that no thread holds a pointer into a deleted domain.
It knows nothing about ROS except the enclave that a participant announces.
"""

from __future__ import annotations

import ctypes as ct
import os
import threading
import weakref
from typing import Protocol

from auras_ros.ros.ranges import ConfigurationError

from . import discovery, loopback, names
from . import library as dds
from .qos import dds_qos

# One octet at offset 0, then the end: the rest of a payload is transferred without being interpreted.
_OPAQUE_OPS = (ct.c_uint32 * 3)(0x01010000, 0, 0)


class Closable(Protocol):
    def close(self) -> None: ...


class _Domains:
    """The DDS domains of this process, each created with our configuration and deleted with its last user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[int, tuple[int, int]] = {}

    def acquire(self, domain_id: int) -> None:
        with self._lock:
            handle, users = self._users.get(domain_id, (0, 0))
            if users == 0:
                handle = _create_domain(domain_id)
            self._users[domain_id] = handle, users + 1

    def release(self, domain_id: int) -> None:
        with self._lock:
            handle, users = self._users[domain_id]
            if users > 1:
                self._users[domain_id] = handle, users - 1
                return
            del self._users[domain_id]
            dds.delete(handle)


def _create_domain(domain_id: int) -> int:
    """A domain, configured by the environment. Its sockets are bound to `lo`, if they must be, before it has a
    participant."""
    try:
        discovery.check_peers()
    except OSError as error:
        raise dds.DdsError(f"ROS_STATIC_PEERS cannot be looked up: {error.strerror}") from error
    before = loopback.sockets()
    if os.environ.get("CYCLONEDDS_URI", ""):
        handle = _create_users_domain(domain_id, before)
    else:
        handle = dds.check(dds.create_domain(domain_id, _bytes(discovery.configuration())), f"domain {domain_id}")
    return _kept_on_loopback(handle, domain_id, before)


def _create_users_domain(domain_id: int, before: dict[str, int]) -> int:
    """A domain with the user's CYCLONEDDS_URI. Raises ConfigurationError if Cyclone DDS refuses it.

    In LOCALHOST ours names `lo`, and Cyclone DDS refuses an interface that is selected twice. Whether the user's
    configuration selects it is asked by trying: Cyclone DDS reads files, lists, abbreviated and unclosed elements and
    variables in a way that no other XML reader does. What keeps others out is not the interface: see `loopback`.
    """
    given = os.environ["CYCLONEDDS_URI"]
    with dds.errors_unprinted():  # the second try prints them, unless it succeeds
        handle: int = dds.create_domain(domain_id, _bytes(discovery.configuration()))
    if handle >= 0:
        return handle
    handle = dds.create_domain(domain_id, _bytes(discovery.configuration(names_loopback=False)))
    if handle < 0:
        raise ConfigurationError(
            f"CYCLONEDDS_URI is {given[:200]!r}, which Cyclone DDS refuses; the line above has the reason"
        )
    if discovery.loopback_alone() and not loopback.is_used(before):
        dds.delete(handle)
        raise ConfigurationError(
            f"CYCLONEDDS_URI is {given[:200]!r}: the interface lo, which LOCALHOST needs, cannot be added to the "
            'interfaces that it selects (by NetworkInterfaceAddress, or four): add <NetworkInterface name="lo"/> to '
            "<Interfaces>, or set ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET"
        )
    return handle


def _bytes(configuration: str) -> bytes:
    """As the environment has it, if it is no UTF-8."""
    return configuration.encode("utf-8", "surrogateescape")


def _create_participant(domain_id: int) -> int:
    """A participant; a CYCLONEDDS_URI may give each one its own socket (ManySocketsMode)."""
    before = loopback.sockets()
    with dds_qos(user_data=b"enclave=/;") as qos:
        handle = dds.check(dds.create_participant(domain_id, qos, None), f"domain {domain_id}")
    return _kept_on_loopback(handle, domain_id, before)


def _kept_on_loopback(handle: int, domain_id: int, before: dict[str, int]) -> int:
    """Returns `handle`, after binding its sockets (those opened after `before`) to `lo` if the range requires it. If
    that fails, deletes the handle and raises ConfigurationError with the reason."""
    try:
        if discovery.loopback_alone():
            loopback.tie(before)
    except OSError as error:
        dds.delete(handle)
        raise ConfigurationError(
            f"domain {domain_id}: LOCALHOST is set and cannot be ensured: {error}"
        ) from None  # the kernel refused, whatever the errno: trying again does not help
    return handle


_DOMAINS = _Domains()


class Participant:
    """A participant with one publisher and one subscriber; endpoints register here to be closed before it."""

    def __init__(self, domain_id: int) -> None:
        self.domain_id = domain_id
        self._lock = threading.RLock()
        self._topics: dict[tuple[str, str], int] = {}
        self._endpoints: weakref.WeakSet[Closable] = weakref.WeakSet()
        self.closed = False
        _DOMAINS.acquire(domain_id)
        try:
            self.ref = _create_participant(domain_id)
        except BaseException:
            _DOMAINS.release(domain_id)
            raise
        self.publisher = dds.check(dds.create_publisher(self.ref, None, None), "publisher")
        self.subscriber = dds.check(dds.create_subscriber(self.ref, None, None), "subscriber")
        self.gid = guid(self.ref)

    def topic(self, name: str, ros_type: str) -> int:
        """The topic entity for a DDS topic name and a ROS type, created once."""
        with self._lock:
            if self.closed:
                raise dds.DdsError(f"topic {name}: the context is shut down")
            if (name, ros_type) not in self._topics:
                descriptor = dds.Descriptor(
                    size=1, align=1, typename=names.dds_type(ros_type).encode(), nops=3, ops=_OPAQUE_OPS, meta=b""
                )
                entity = dds.create_topic(self.ref, ct.byref(descriptor), name.encode(), None, None)
                self._topics[name, ros_type] = dds.check(entity, f"topic {name} of {ros_type}")
            return self._topics[name, ros_type]

    def register(self, endpoint: Closable) -> None:
        """Have `endpoint` closed before the participant."""
        with self._lock:
            self._endpoints.add(endpoint)

    def close(self) -> None:
        """Delete every endpoint, then the participant, then the domain; a second call does nothing."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            endpoints = list(self._endpoints)
        for endpoint in endpoints:
            endpoint.close()
        dds.delete(self.ref)
        _DOMAINS.release(self.domain_id)


def guid(entity: int) -> bytes:
    """The 16 bytes that identify an entity on the wire."""
    value = (ct.c_uint8 * 16)()
    dds.check(dds.get_guid(entity, value), "guid")
    return bytes(value)
