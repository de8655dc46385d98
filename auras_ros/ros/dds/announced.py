"""What other participants announce about their nodes on ros_discovery_info: bounded, and kept as bytes.

Any participant may announce anything, and making or collecting many objects keeps the interpreter lock from every other
thread. So gids are not made into objects: those of a participant stay one bytes value and are searched as they are.
This module never checks which participants still exist.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from .cdr import CdrError, byte_order, decoder
from .messages import message_type

INFO = "rmw_dds_common/msg/ParticipantEntitiesInfo"
MAX_BYTES = 128 << 10  # of one announcement: 8,000 endpoints of one process
MAX_SUM_BYTES = 4 << 20  # of all kept announcements
ROOM_BYTES = MAX_SUM_BYTES // 4  # freed at once, so that freeing is rare
NODE_BYTES = 256  # the least that a node counts: a real one has about twenty endpoints
_GID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Announced:
    """The nodes of one participant. `ends`: for each node, how many of the gids belong to it and to those before it."""

    participant: bytes
    nodes: tuple[tuple[str, str], ...]  # (name, namespace)
    ends: tuple[int, ...]
    gids: bytes
    size: int  # bytes that it counts as

    def owner(self, gid: bytes) -> tuple[str, str] | None:
        """(name, namespace) of the node that has this endpoint."""
        known, (first, second) = np.frombuffer(self.gids, np.uint64), np.frombuffer(gid, np.uint64)
        found = np.flatnonzero((known[::2] == first) & (known[1::2] == second))
        return self.nodes[bisect_right(self.ends, int(found[-1]))] if found.size else None


def read(payload: memoryview | bytes) -> Announced:
    """The content of an announcement. Raises CdrError if it is not one, or is larger than any valid one."""
    if len(payload) > MAX_BYTES:
        raise CdrError(f"{len(payload)} bytes, at most {MAX_BYTES}")
    view = memoryview(payload)
    order, body = byte_order(view), view[4:]
    count = struct.Struct(order + "I").unpack_from
    text = decoder(message_type("rmw_dds_common/msg/NodeEntitiesInfo")._fields[0], order, None)
    nodes: list[tuple[str, str]] = []
    ends: list[int] = []
    gids: list[memoryview] = []
    try:
        number, at = count(body, _GID_BYTES)[0], _GID_BYTES + 4
        if number * NODE_BYTES > MAX_BYTES:
            raise CdrError(f"{number} nodes, at most {MAX_BYTES // NODE_BYTES}")
        for _ in range(number):
            namespace, at = text(body, at)
            name, at = text(body, at)
            nodes.append((name, namespace))
            held = ends[-1] if ends else 0
            for _ in ("readers", "writers"):
                at += -at & 3
                length, at = count(body, at)[0], at + 4
                gids.append(body[at : at + length * _GID_BYTES])
                held, at = held + length, at + length * _GID_BYTES
            ends.append(held)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CdrError(f"not a {INFO}: {error}") from error
    if not 0 <= len(body) - at <= 3:
        raise CdrError(f"not a {INFO}: {len(body) - at} bytes left over")
    size = max(len(payload), NODE_BYTES * (number + 1))
    return Announced(bytes(body[:_GID_BYTES]), tuple(nodes), tuple(ends), b"".join(gids), size)


class Announcements:
    """The newest announcement of each participant. The owner calls `make_room` if it is `full`."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Announced] = {}  # the oldest first
        self.size = 0

    def __contains__(self, participant: bytes) -> bool:
        return participant in self._kept

    @property
    def full(self) -> bool:
        """Whether more than the limit is kept."""
        return self.size > MAX_SUM_BYTES

    def put(self, announced: Announced) -> None:
        """Keep it instead of the participant's previous announcement."""
        self._forget(announced.participant)
        self._kept[announced.participant] = announced
        self.size += announced.size

    def _forget(self, participant: bytes) -> None:
        if (gone := self._kept.pop(participant, None)) is not None:
            self.size -= gone.size

    def keep(self, alive: Collection[bytes]) -> None:
        """Forget all but these participants."""
        for participant in [each for each in self._kept if each not in alive]:
            self._forget(participant)

    def make_room(self, partners: Collection[bytes]) -> int:
        """Remove announcements of non-partners, the oldest first, then the largest of partners. Returns how many."""
        before = len(self._kept)
        strangers = [each for each in self._kept if each not in partners]
        largest = sorted((each for each in self._kept if each in partners), key=lambda each: -self._kept[each].size)
        for participant in (*strangers, *largest):
            if self.size <= MAX_SUM_BYTES - ROOM_BYTES:
                break
            self._forget(participant)
        return before - len(self._kept)

    def nodes(self) -> list[tuple[str, str]]:
        """(name, namespace) of every node."""
        return [node for announced in self._kept.values() for node in announced.nodes]

    def owner(self, participant: bytes, gid: bytes) -> tuple[str, str] | None:
        """(name, namespace) of the node that has this endpoint of a participant, if it was announced."""
        announced = self._kept.get(participant)
        return None if announced is None else announced.owner(gid)
