"""Makes readers again that have become deaf: one broken or forged packet can make a reader drop all that a publisher
says from then on, while discovery shows both as alive.

Only silence shows it. A publisher of a periodic topic that is alive and silent for 20 of its periods, at least 1 s,
gets a new reader; if it stays silent, the next ones follow after 1, 2, 4 ... s, because it may just have nothing to
say. If the new reader hears at once, the old one was deaf, unless the first message's sequence number shows that the
publisher itself had stood still. Then readers of rare topics, whose silence shows nothing, and services are made again
too. Time in which this process stood still is no silence: messages wait to be read. `ros.deaf` has what is different in
each ROS.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import DurabilityPolicy, Node, ReliabilityPolicy
from auras_ros.ros.deaf import dropped_bytes, rediscover, renew_services
from auras_ros.ros.identity import IDENTIFIES_PUBLISHERS, UNKNOWN, publisher_of

LOOK_PERIOD_S = 0.25  # how often `look` is to be called
SILENT_PERIODS = 20
LEAST_SILENCE_S = 1.0
ASSUMED_PERIOD_S = 0.1  # of a publisher of which fewer than two messages came
FIRST_PAUSE_S = 1.0  # until a reader is made again once more; doubled each time while nothing is heard
MAX_PAUSE_S = 64.0
AT_ONCE_S = 2.5  # a new reader that hears so soon shows that the old one was deaf
DROPPED_MESSAGES = 3  # a reader that has dropped so many, and delivered none, is deaf
STOOD_STILL_S = 3 * LOOK_PERIOD_S  # so long between two looks: this process did not run
FEW_MESSAGES = 3  # a publisher that sent no more than this in a silence that long stood still itself
SAID_INTERVALS = 10.0  # between two lines about one reader: its node says in each interval what is missing
KEPT_ARRIVALS = 10  # of each publisher
KEPT_MESSAGES = 64  # of each rare topic: a new reader may get messages again that the old one had

Receive = Callable[[Any, Any], object]  # payload, and what the middleware says of the message


class _Publisher:
    """When one publisher of a topic was discovered and heard, in monotonic seconds."""

    def __init__(self, discovered_s: float) -> None:
        self._counted_from_s = discovered_s  # no silence is counted before
        self._arrivals_s: deque[float] = deque(maxlen=KEPT_ARRIVALS)
        self._number: int | None = None  # of the newest message, as its publisher counts
        self.stood_still = False  # whether it had sent nothing in its newest silence

    def note_message(self, now_s: float, number: int | None) -> None:
        """number: the message's sequence number; None if the middleware does not tell."""
        if self.is_silent(now_s):
            sent = None if number is None or self._number is None else number - self._number
            self.stood_still = sent is not None and 0 < sent <= FEW_MESSAGES
        self._arrivals_s.append(now_s)
        self._number = number

    def excuse(self, now_s: float) -> None:
        """Count silence from now on only."""
        self._counted_from_s = now_s

    def heard_s(self) -> float | None:
        """When its newest message came; None if none did."""
        return self._arrivals_s[-1] if self._arrivals_s else None

    def is_silent(self, now_s: float) -> bool:
        """Whether it has been silent for too long."""
        since_s = max(self._counted_from_s, self.heard_s() or 0.0)
        return now_s - since_s > max(LEAST_SILENCE_S, SILENT_PERIODS * self._period_s())

    def _period_s(self) -> float:
        times_s = list(self._arrivals_s)
        intervals_s = [later - earlier for earlier, later in pairwise(times_s)]
        return statistics.median(intervals_s) if intervals_s else ASSUMED_PERIOD_S


def _closed(*_: Any) -> None:
    """In place of the functions of a closed reader."""


class WatchedReader:
    """One subscription that can be made again; `ReaderWatch.add` makes it.

    topic: its name. create: makes the subscription, with the callback (payload, info) that it is given. receive: called
    with each message. periodic: whether silence of a living publisher is a fault. clock: monotonic seconds.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        create: Callable[[Receive], Any],
        receive: Receive,
        periodic: bool,
        clock: Callable[[], float],
    ) -> None:
        self.topic = topic
        self.periodic = periodic
        self.renewed_count = 0
        self.deaf_count = 0  # how often it was deaf
        self.closed = False
        self._node = node
        self._create = create
        self._receive = receive
        self._clock = clock
        self._publishers: dict[bytes, _Publisher] = {}
        self._message_bytes = 0  # of the newest message
        self._has_news = False  # whether a message came since `look` was last called
        self._dropped_bytes = 0  # by this subscription, up to when all publishers were last heard
        self._renewed_s: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._missing: set[bytes] = set()  # publishers that were silent when it was made again, and still are
        self._received: deque[tuple[bytes, int]] = deque(maxlen=KEPT_MESSAGES)  # publisher and time of rare messages
        self.subscription = create(self._on_message)

    def close(self) -> None:
        """Destroy the subscription for good, and keep nothing of who made it: a released policy must be freed now."""
        if not self.closed:
            self.closed = True
            self._node.destroy_subscription(self.subscription)
            self.subscription = None
            self._create = _closed
            self._receive = _closed

    def renew(self) -> None:
        """Destroy the subscription and make it again."""
        self._node.destroy_subscription(self.subscription)
        self.renewed_count += 1
        self.subscription = self._create(self._on_message)
        self._dropped_bytes = dropped_bytes(self.subscription)  # of the same publishers, before it was made

    def matches(self, info: Any) -> bool:
        """Whether DDS lets it hear a publisher, of which `get_publishers_info_by_topic` says this: one of its type that
        offers what it requests."""
        wanted = self.subscription.qos_profile
        offered = info.qos_profile
        if wanted.reliability == ReliabilityPolicy.RELIABLE and offered.reliability == ReliabilityPolicy.BEST_EFFORT:
            return False
        if wanted.durability == DurabilityPolicy.TRANSIENT_LOCAL and offered.durability == DurabilityPolicy.VOLATILE:
            return False
        return bool(info.topic_type.rpartition("/")[2] == self.subscription.msg_type.__name__)

    # -- messages -----------------------------------------------------------------------------------------

    def _on_message(self, payload: Any, info: Any) -> None:
        publisher = publisher_of(info)
        if self.periodic:
            now_s = self._clock()
            self._has_news = True
            if publisher != UNKNOWN or not IDENTIFIES_PUBLISHERS:  # else the publisher is gone
                number = info.get("publication_sequence_number")
                self._publishers.setdefault(publisher, _Publisher(now_s)).note_message(now_s, number)
            self._message_bytes = len(payload) if isinstance(payload, (bytes, memoryview)) else 0
        elif self._is_repetition(publisher, info):
            return
        self._receive(payload, info)

    def _is_repetition(self, publisher: bytes, info: Any) -> bool:
        """Whether this message came before: a publisher that keeps its last message sends it to every new reader."""
        stamp_ns = int(info.get("source_timestamp", 0))
        message = (publisher, stamp_ns)
        if stamp_ns > 0 and message in self._received:
            return True
        self._received.append(message)
        return False

    # -- silence ------------------------------------------------------------------------------------------

    def silent_publishers(self, alive: set[bytes]) -> list[bytes]:
        """Those of the living publishers that have been silent for too long."""
        now_s = self._clock()
        unknown = self._publishers.get(UNKNOWN)  # of a ROS that does not say who published
        self._publishers = {gid: self._publishers.get(gid) or _Publisher(now_s) for gid in alive}
        if unknown is not None:
            self._publishers[UNKNOWN] = unknown
            return sorted(alive) if unknown.is_silent(now_s) else []
        return sorted(gid for gid in alive if self._publishers[gid].is_silent(now_s))

    def excuse_silence(self) -> None:
        """Count all publishers' silence from now on only."""
        now_s = self._clock()
        for publisher in self._publishers.values():
            publisher.excuse(now_s)

    def note_heard(self) -> None:
        """Note that all living publishers are heard."""
        if self._has_news:
            self._has_news = False
            self._dropped_bytes = dropped_bytes(self.subscription)
        if self._renewed_s is not None and self._clock() - self._renewed_s >= AT_ONCE_S:
            self._missing = set()  # those that were missing are gone

    def newly_dropped_bytes(self) -> int:
        """How many bytes were dropped since all publishers were last heard, if they are several messages; else 0."""
        dropped = dropped_bytes(self.subscription) - self._dropped_bytes
        return dropped if dropped >= DROPPED_MESSAGES * self._message_bytes else 0

    @property
    def is_missing_publishers(self) -> bool:
        """Whether it was made again because of a publisher that is still not heard."""
        return bool(self._missing)

    def may_be_renewed(self) -> bool:
        """Whether the pause since it was last made again is over."""
        return self._renewed_s is None or self._clock() - self._renewed_s >= self._pause_s

    def renew_because_of(self, silent: list[bytes]) -> None:
        """Make it again because of these publishers; the pause grows if it was just made again."""
        self._pause_s = min(2.0 * self._pause_s, MAX_PAUSE_S) if self._missing else FIRST_PAUSE_S
        self._missing = set(silent)
        self._renewed_s = self._clock()
        self.renew()

    def has_healed(self) -> bool:
        """Whether it hears at once a publisher that was silent before it was made again, though that one had not stood
        still. True once."""
        if self._renewed_s is None or not self._missing:
            return False
        for gid in (*self._missing, UNKNOWN):
            publisher = self._publishers.get(gid)
            heard_s = None if publisher is None else publisher.heard_s()
            if publisher is not None and heard_s is not None and heard_s > self._renewed_s:
                self._missing = set()
                self._pause_s = FIRST_PAUSE_S
                return not publisher.stood_still and self._clock() - self._renewed_s < AT_ONCE_S
        return False


class ReaderWatch:
    """The watched readers of one node. All methods, and all callbacks, belong to the thread of the node's executor.

    warn: called with one line for the log. clock: monotonic seconds.
    """

    def __init__(self, node: Node, warn: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._node = node
        self._warn = warn
        self._clock = clock
        self._readers: list[WatchedReader] = []
        self._looked_s: float | None = None
        self._lines = RepeatedLines(SAID_INTERVALS, clock)
        self._closed_counts: dict[str, tuple[int, int]] = {}  # those of closed readers, as `counts` has them

    def add(
        self, topic: str, create: Callable[[Receive], Any], receive: Receive, periodic: bool = False
    ) -> WatchedReader:
        """Make a subscription and watch it: see `WatchedReader`."""
        reader = WatchedReader(self._node, topic, create, receive, periodic, self._clock)
        self._readers.append(reader)
        return reader

    def look(self) -> None:
        """Make the readers again that may be deaf. Call it every `LOOK_PERIOD_S`."""
        self._drop_closed()
        now_s = self._clock()
        stood_still = self._looked_s is not None and now_s - self._looked_s > STOOD_STILL_S
        self._looked_s = now_s
        for reader in self._readers:
            if reader.periodic and stood_still:
                reader.excuse_silence()
            if reader.periodic:
                self._look_at(reader)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Topic -> how often its reader was made again, and how often it was deaf."""
        counts = dict(self._closed_counts)
        for reader in self._readers:
            _add_counts(counts, reader)
        return counts

    def silent_topics(self) -> list[str]:
        """Topics of which a living publisher was not heard when last looked at."""
        return sorted({reader.topic for reader in self._readers if reader.is_missing_publishers and not reader.closed})

    def _drop_closed(self) -> None:
        for reader in self._readers:
            if reader.closed:
                _add_counts(self._closed_counts, reader)
        self._readers = [reader for reader in self._readers if not reader.closed]

    def _look_at(self, reader: WatchedReader) -> None:
        names = {
            bytes(info.endpoint_gid): info.node_name or "a publisher of no known node"
            for info in self._node.get_publishers_info_by_topic(reader.topic)
            if reader.matches(info)
        }
        silent = reader.silent_publishers(set(names))
        if reader.has_healed():
            reader.deaf_count += 1
            self._renew_rare(reader)
        if not silent:
            reader.note_heard()
        elif reader.may_be_renewed():
            self._renew(reader, silent, ", ".join(sorted({names[gid] for gid in silent})))

    def _renew(self, reader: WatchedReader, silent: list[bytes], names: str) -> None:
        dropped = reader.newly_dropped_bytes()
        reader.renew_because_of(silent)
        text = f"{reader.topic}: {names} is alive and not heard: new reader, the {_ordinal(reader.renewed_count)}"
        if line := self._lines.line(reader.topic, text, cause=names):
            self._warn(line)
        if dropped and (count := rediscover(self._node)):
            self._warn(
                f"{reader.topic}: the old reader had dropped {dropped} bytes: a broken or forged packet was received; "
                f"all {count} other participants are discovered again"
            )

    def _renew_rare(self, deaf: WatchedReader) -> None:
        """After a reader was deaf, make again what may be deaf too without anybody noticing."""
        rare = [reader for reader in self._readers if not reader.periodic and not reader.closed]
        for reader in rare:
            reader.renew()
        services = renew_services(self._node)
        self._warn(
            f"{deaf.topic}: the new reader hears, so the old one was deaf; new readers of {len(rare)} rare topics and "
            f"{len(services)} services too"
        )


def _add_counts(counts: dict[str, tuple[int, int]], reader: WatchedReader) -> None:
    renewed, deaf = counts.get(reader.topic, (0, 0))
    counts[reader.topic] = renewed + reader.renewed_count, deaf + reader.deaf_count


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else endings.get(number % 10, 'th')}"
