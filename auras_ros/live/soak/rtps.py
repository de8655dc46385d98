"""RTPS packets as an attacker on the network sends them: forged in the name of a participant, and mutated at random.

RTPS (OMG DDSI-RTPS 2.5, section 9) is the protocol of DDS on UDP. It has no authentication, so whoever can reach a
participant's port can speak for any other participant: a GUID is all that is needed, and discovery tells it to
everybody. Nothing here joins the domain, and no DDS library is used. Everything random comes from the seed.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PREFIX_BYTES = 12  # the part of a GUID that a participant's entities share; the last 4 bytes are the entity's id
UNKNOWN_ENTITY = bytes(4)  # as reader: every reader that is matched with the writer
UNKNOWN_PREFIX = bytes(PREFIX_BYTES)
VENDOR = b"\x01\x10"  # Eclipse Cyclone DDS; receivers do not mind
LITTLE_ENDIAN = 0x01  # flag of a submessage
SEQUENCE_NUMBER = struct.Struct("<iI")  # a sequence number: high and low 32 bits
FAR = 2**40  # a sequence number that no writer of the same day reaches

# Kinds of submessages.
PAD = 0x01
ACKNACK = 0x06
HEARTBEAT = 0x07
GAP = 0x08
INFO_TIMESTAMP = 0x09
INFO_SOURCE = 0x0C
INFO_REPLY_IP4 = 0x0D
INFO_DESTINATION = 0x0E
INFO_REPLY = 0x0F
NACK_FRAGMENT = 0x12
HEARTBEAT_FRAGMENT = 0x13
DATA = 0x15
DATA_FRAGMENT = 0x16
KINDS = (
    PAD, ACKNACK, HEARTBEAT, GAP, INFO_TIMESTAMP, INFO_SOURCE, INFO_REPLY_IP4, INFO_DESTINATION, INFO_REPLY,
    NACK_FRAGMENT, HEARTBEAT_FRAGMENT, DATA, DATA_FRAGMENT,
)  # fmt: skip

# Entities of discovery that every participant has: it writes itself, its publishers, subscriptions and liveliness.
PARTICIPANTS_WRITER = b"\x00\x01\x00\xc2"
PUBLICATIONS_WRITER = b"\x00\x00\x03\xc2"
SUBSCRIPTIONS_WRITER = b"\x00\x00\x04\xc2"
LIVELINESS_WRITER = b"\x00\x02\x00\xc2"
DISCOVERY_WRITERS = (PARTICIPANTS_WRITER, PUBLICATIONS_WRITER, SUBSCRIPTIONS_WRITER, LIVELINESS_WRITER)

LOOPBACK = "127.0.0.1"
MAX_DATAGRAM_BYTES = 65_000
PORTS_OF_A_DOMAIN = 250
FIRST_PORT = 7400
# A participant of this index is announced to by everybody who announces to localhost by unicast.
LISTENING_INDEXES = range(8, 33)


# -- packets ------------------------------------------------------------------------------------------------


def packet(guid: bytes, *submessages: bytes, vendor: bytes = VENDOR) -> bytes:
    """A packet in the name of the participant to which `guid` (12 bytes or more) belongs."""
    return b"RTPS\x02\x05" + vendor + guid[:PREFIX_BYTES] + b"".join(submessages)


def submessage(kind: int, flags: int, body: bytes) -> bytes:
    return struct.pack("<BBH", kind, flags | LITTLE_ENDIAN, len(body)) + body


def heartbeat(guid: bytes, first: int, last: int, count: int = 2**30) -> bytes:
    """A packet in the name of the writer `guid` (16 bytes): it holds the sequence numbers `first` to `last`, and no
    other ones exist. A reader that believes a number far ahead ignores the writer's real messages, which are older."""
    body = UNKNOWN_ENTITY + guid[PREFIX_BYTES:16] + _number(first) + _number(last) + struct.pack("<I", count)
    return packet(guid, submessage(HEARTBEAT, 0, body))


def gap(guid: bytes, first: int, last: int) -> bytes:
    """A packet in the name of the writer `guid` (16 bytes): the sequence numbers `first` to `last` are irrelevant, do
    not wait for them."""
    body = UNKNOWN_ENTITY + guid[PREFIX_BYTES:16] + _number(first) + _number(last + 1) + struct.pack("<I", 0)
    return packet(guid, submessage(GAP, 0, body))


def data(guid: bytes, number: int, payload: bytes) -> bytes:
    """A packet in the name of the writer `guid` (16 bytes): its message of this sequence number. payload: CDR with its
    four bytes of encapsulation."""
    has_payload = 0x04
    fields = struct.pack("<HH", 0, 16)  # no extra flags; where the payload begins, counted from here
    body = fields + UNKNOWN_ENTITY + guid[PREFIX_BYTES:16] + _number(number) + payload
    return packet(guid, submessage(DATA, has_payload, body))


def acknack(reader: bytes, writer_entity: bytes, next_number: int) -> bytes:
    """A packet in the name of the reader `reader` (16 bytes) to the writers of the entity id `writer_entity` (4 bytes):
    it has received every message before `next_number`."""
    final = 0x02  # needs no answer
    body = reader[PREFIX_BYTES:16] + writer_entity + _number(next_number) + struct.pack("<II", 0, 2**30)
    return packet(reader, submessage(ACKNACK, final, body))


def goodbye(guid: bytes, number: int = 2) -> bytes:
    """A packet in the name of the participant of `guid`: it has left the domain. number: its sequence number; Fast DDS
    ignores one that is not higher than that of the participant's announcement."""
    has_inline_qos, has_key = 0x02, 0x08
    participant = guid[:PREFIX_BYTES] + b"\x00\x00\x01\xc1"
    end_of_list = struct.pack("<HH", 1, 0)
    status = struct.pack("<HHBBBB", 0x0071, 4, 0, 0, 0, 3)  # disposed and unregistered
    key_hash = struct.pack("<HH", 0x0070, 16) + participant  # Fast DDS reads it here, Cyclone DDS in the payload
    inline_qos = status + key_hash + end_of_list
    key = b"\x00\x03\x00\x00" + struct.pack("<HH", 0x0050, 16) + participant + end_of_list
    body = struct.pack("<HH", 0, 16) + UNKNOWN_ENTITY + PARTICIPANTS_WRITER + _number(number) + inline_qos + key
    return packet(guid, submessage(DATA, has_inline_qos | has_key, body))


def writer_packets(guid: bytes) -> list[bytes]:
    """Packets of every kind in the name of the writer `guid` (16 bytes), each one valid: material for mutations."""
    return [
        heartbeat(guid, 1, 1),
        heartbeat(guid, FAR, FAR),
        gap(guid, 1, FAR),
        data(guid, FAR, b"\x00\x01\x00\x00" + bytes(8)),
        data(guid, 1, b"\x00\x01\x00\x00" + bytes(200)),
        packet(guid, submessage(INFO_TIMESTAMP, 0, bytes(8)), heartbeat(guid, 1, 2)[20:]),
        packet(guid, submessage(INFO_DESTINATION, 0, guid[:PREFIX_BYTES]), data(guid, 2, bytes(32))[20:]),
    ]


def discovery_packets(guid: bytes) -> list[bytes]:
    """The same in the name of the four writers by which the participant of `guid` announces itself."""
    return [made for entity in DISCOVERY_WRITERS for made in writer_packets(guid[:PREFIX_BYTES] + entity)]


def _number(value: int) -> bytes:
    return SEQUENCE_NUMBER.pack(value >> 32, value & 0xFFFFFFFF)


# -- mutations ----------------------------------------------------------------------------------------------


def mutated_packets(originals: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """`count` packets, each one of `originals` with one to four mutations. The same seed yields the same packets.

    The 20 bytes of the header are kept in most packets, so that these are taken for the participant's own."""
    rng = random.Random(seed)
    for _ in range(count):
        mutated = bytearray(rng.choice(originals))
        begin = 20 if rng.random() < 0.9 else 0
        for _ in range(rng.randint(1, 4)):
            _mutate(mutated, begin, rng, originals)
        yield bytes(mutated[:MAX_DATAGRAM_BYTES])


def _mutate(mutated: bytearray, begin: int, rng: random.Random, originals: Sequence[bytes]) -> None:
    """Change the packet from the byte `begin` on: one bit, one byte, a number, a kind, the end, or a part repeated."""
    if len(mutated) <= begin + 4:
        mutated += rng.choice(originals)[20:] or bytes(8)
    at = rng.randrange(begin, len(mutated))
    what = rng.randrange(7)
    if what == 0:
        mutated[at] ^= 1 << rng.randrange(8)
    elif what == 1:
        mutated[at] = rng.randrange(256)
    elif what == 2:
        number = rng.choice((0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, rng.randrange(2**32)))
        mutated[at : at + 4] = struct.pack("<I", number)
    elif what == 3:
        mutated[begin] = rng.choice(KINDS)
    elif what == 4:
        del mutated[at:]
    elif what == 5:
        mutated += rng.choice(originals)[20:]
    else:
        length = rng.randrange(1, 64)
        mutated[at:at] = mutated[at : at + length]


# -- the wire -----------------------------------------------------------------------------------------------


def domain_ports(domain: int) -> range:
    """Every UDP port that participants of a ROS domain may use."""
    first = FIRST_PORT + PORTS_OF_A_DOMAIN * domain
    return range(first, first + PORTS_OF_A_DOMAIN)


def open_ports(domain: int) -> list[int]:
    """Those of them on which a process of this machine listens now."""
    ports = domain_ports(domain)
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    bound = {int(line.split()[1].rpartition(":")[2], 16) for line in lines}
    return sorted(bound.intersection(ports))


def own_ports() -> set[int]:
    """The UDP ports on which this process listens."""
    inodes = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    lines = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return {int(fields[1].rpartition(":")[2], 16) for fields in lines if fields[9] in inodes}


def send(packets: Iterable[bytes], domain: int, rate_hz: float = 2000.0, spared: Collection[int] = ()) -> int:
    """Send each packet to every open port of the domain on loopback but the spared ones, at most so many packets a
    second, so that the receivers' socket buffers do not overflow. Returns the number of packets."""
    ports = [port for port in open_ports(domain) if port not in spared]
    sent = 0
    begin_s = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for each in packets:
            for port in ports:
                with suppress(OSError):  # the process on this port has ended meanwhile
                    sender.sendto(each, (LOOPBACK, port))
            sent += 1
            ahead_s = begin_s + sent / rate_hz - time.monotonic()
            if ahead_s > 0.01:
                time.sleep(ahead_s)
    return sent


def captured_packets(domain: int, duration_s: float = 3.0) -> list[bytes]:
    """Real packets of the domain's participants: their announcements, which reach every port of localhost where a
    participant may listen. Needs a free port; empty if nobody announces itself in this time."""
    captured: set[bytes] = set()
    receivers = _listeners(domain)
    try:
        end_s = time.monotonic() + duration_s
        while (left_s := end_s - time.monotonic()) > 0:
            for receiver in select.select(receivers, (), (), left_s)[0]:
                captured.add(receiver.recv(MAX_DATAGRAM_BYTES))
    finally:
        for receiver in receivers:
            receiver.close()
    return sorted(made for made in captured if made[:4] == b"RTPS" and len(made) > 20)


def participants_of(packets: Iterable[bytes]) -> list[bytes]:
    """The participants (12 bytes of their GUIDs) in whose name the packets are."""
    return sorted({made[8:20] for made in packets})


def _listeners(domain: int) -> list[socket.socket]:
    """Sockets on ports where participants announce themselves and where none listens yet."""
    receivers = []
    for index in LISTENING_INDEXES:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            receiver.bind((LOOPBACK, domain_ports(domain)[10 + 2 * index]))
        except OSError:  # a participant has it
            receiver.close()
            continue
        receivers.append(receiver)
        if len(receivers) == 2:
            break
    return receivers
