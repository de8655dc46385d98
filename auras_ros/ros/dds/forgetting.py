"""Makes this process forget remote participants, so that Cyclone DDS discovers them again from the beginning.

Cyclone DDS keeps one state of each remote writer for all readers of a process: the sequence number that it expects
next. A forged or broken packet can move it so far ahead that every message of the writer is dropped as too old. A new
reader shares that state, and there is no call that resets it. The state ends with the remote participant, which RTPS
removes when the participant says goodbye; so this process tells itself the goodbyes of the others. It also says goodbye
to them: a participant that still knew this one would not describe its publishers again, and one that hears a new
participant announces itself at once. Our layer announces itself every 0.4 s, so all of them meet again within a second.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress

from . import discovery, loopback

_PREFIX_BYTES = 12  # the part of a GUID that a participant's entities share
_PARTICIPANT_ENTITY = b"\x00\x00\x01\xc1"
_PARTICIPANTS_WRITER = b"\x00\x01\x00\xc2"
_UNKNOWN_ENTITY = bytes(4)
# Participants announce themselves by number 1, and Fast DDS takes a goodbye of that number for a repetition.
_GOODBYE_NUMBER = 2
_FIRST_PORT = 7400
_PORTS_OF_A_DOMAIN = 250


def goodbye(guid: bytes) -> bytes:
    """The RTPS packet by which the participant of `guid` (12 bytes or more) would leave the domain: a DATA submessage
    (OMG DDSI-RTPS 2.5, section 9.4.5.4) whose inline QoS says that it is disposed and unregistered."""
    prefix = guid[:_PREFIX_BYTES]
    participant = prefix + _PARTICIPANT_ENTITY
    end_of_list = struct.pack("<HH", 0x0001, 0)
    status = struct.pack("<HH4B", 0x0071, 4, 0, 0, 0, 3)
    key_hash = struct.pack("<HH", 0x0070, 16) + participant  # Fast DDS reads it here, Cyclone DDS in the payload
    key = struct.pack("<HH", 0x0050, 16) + participant + end_of_list
    number = struct.pack("<iI", 0, _GOODBYE_NUMBER)
    addresses = struct.pack("<HH", 0, 16) + _UNKNOWN_ENTITY + _PARTICIPANTS_WRITER + number
    body = addresses + status + key_hash + end_of_list + b"\x00\x03\x00\x00" + key
    data_with_key = struct.pack("<BBH", 0x15, 0x01 | 0x02 | 0x08, len(body))  # little endian, inline QoS, key
    return b"RTPS\x02\x05\x01\x10" + prefix + data_with_key + body


def part_from_others(domain_id: int, own_guid: bytes, others: Iterable[bytes]) -> int:
    """Make this process forget the other participants, and those that it can reach forget this one. The GUIDs have 12
    bytes or more. Returns the number of the other participants; 0 without /proc, which names this process's sockets."""
    own_addresses = _own_addresses(domain_id)
    if not own_addresses:
        return 0
    prefixes = {guid[:_PREFIX_BYTES] for guid in others}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for prefix in sorted(prefixes):
            _send(sender, goodbye(prefix), own_addresses)
        _send(sender, goodbye(own_guid), sorted(set(_addresses_of_others(domain_id)).difference(own_addresses)))
    return len(prefixes)


def _send(sender: socket.socket, packet: bytes, addresses: Iterable[tuple[str, int]]) -> None:
    for address in addresses:
        with suppress(OSError):  # nobody is there
            sender.sendto(packet, address)


def _addresses_of_others(domain_id: int) -> list[tuple[str, int]]:
    """Where participants receive announcements: every port of the domain on this machine, and the group that those on
    other machines have joined, if this process may speak to them."""
    first = _FIRST_PORT + _PORTS_OF_A_DOMAIN * domain_id
    addresses = [("127.0.0.1", port) for port in range(first, first + _PORTS_OF_A_DOMAIN)]
    if not discovery.loopback_alone():
        addresses.append((discovery.DISCOVERY_GROUP, first))
    return addresses


def _own_addresses(domain_id: int) -> list[tuple[str, int]]:
    """Where this process receives packets of the domain."""
    first = _FIRST_PORT + _PORTS_OF_A_DOMAIN * domain_id
    addresses = set()
    for descriptor in loopback.sockets().values():
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as opened:  # closed meanwhile
            if opened.family != socket.AF_INET or opened.type != socket.SOCK_DGRAM:
                continue
            host, port = opened.getsockname()
            if first <= port < first + _PORTS_OF_A_DOMAIN:
                addresses.add(("127.0.0.1" if host == "0.0.0.0" else host, port))
    return sorted(addresses)
