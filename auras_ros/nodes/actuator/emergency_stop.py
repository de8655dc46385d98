"""The emergency stop: a topic and a service, in a thread that does nothing else.

Every True that arrives is latched, whatever follows it and however busy the node is. The latch comes first: before it
only the Bool is read, and nothing is asked, counted or logged. Messages wait in a deep queue for this thread only, and
if more come than the queue can safely hold, that counts as a press. Requests of the service wait in such a queue too;
with our ROS layer every message on its request topic counts, even an unreadable one. With our layer the thread does not
log either: the executor's thread logs for it, because writing a log line may block.

Two readers hear the topic. The transient local one also hears what a button said before this node started; only its
publishers satisfy `require_emergency_stop`. The volatile one also hears publishers that keep nothing for late joiners,
as `ros2 topic pub` offers. A message that both hear counts once.

Each publisher counts separately if the middleware identifies the publisher of a message (our layer and rclpy 9 do,
rclpy 7.1 does not): False releases only the same publisher's True, and a publisher that disappears does not release.
What remains pressed is released by a person, through the service ~/release_stop.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from auras_ros.nodes.actuator.other_publishers import publisher_name
from auras_ros.nodes.actuator.realtime import enter_realtime
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.ros import (
    BACKEND,
    DurabilityPolicy,
    ExternalShutdownException,
    Node,
    QoSProfile,
    ReliabilityPolicy,
    SubscriptionEventCallbacks,
    deserialize_message,
)
from auras_ros.ros.bounded import RefusedMessages
from auras_ros.ros.callbacks import WAKE_S, Callbacks
from auras_ros.ros.identity import UNKNOWN, identifies, publisher_of
from auras_ros.ros.msg import Bool
from auras_ros.ros.srv import Trigger

TOPIC = "emergency_stop"
KEPT = 1000  # length of the queue
# If so many messages come within a second, or since the queue was last empty, some may have been lost while the thread
# did not run or read too slowly.
FLOOD = KEPT // 2
LOOK = FLOOD // 2  # from this number on, check whether the queue is empty
EMPTY = 5  # the queue is empty after so many turns without a callback; a few may be the middleware's own
MAX_BYTES = 64
# A publisher that keeps its last message repeats it to a new reader, with Fast DDS up to its heartbeat period of 3 s
# later. So long after its discovery the publisher may still have something to say.
HISTORY_S = 5.0
PRESSED, FLOODED = "emergency stop pressed", f"emergency_stop: more than {FLOOD} messages in a second: one may be lost"
BACKLOG = f"emergency_stop: more than {FLOOD} messages waited to be read: one may be lost"
REQUESTED = "stop requested"
KEPT_QUEUE = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
VOLATILE_QUEUE = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE)
REQUESTS = VOLATILE_QUEUE  # for a service whose requests must not be overwritten by later ones
BOOL = "std_msgs/msg/Bool"


def _can_be_heard(info: Any) -> bool:
    return bool(info.topic_type == BOOL and info.qos_profile.reliability == ReliabilityPolicy.RELIABLE)


def _keeps_its_last_word(info: Any) -> bool:
    """Whether an actuator that starts later hears this publisher's last message."""
    return _can_be_heard(info) and bool(info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL)


class EmergencyStop:
    """The thread calls `latch(reason)`, and records who has published and who has pressed, under the lock. All methods
    below the second heading are called in the executor's thread."""

    def __init__(
        self, node: Node, latch: Callable[[str], object], refused: RefusedMessages, qos: QosWatch, priority: int
    ) -> None:
        """priority: the actuator's realtime priority, 0: none. Nothing is read before `start`."""
        self._owner, self._latch, self._refused = node, latch, refused
        self._lock = threading.Lock()  # held for a few instructions
        self._down: dict[bytes, int] = {}  # publisher -> number of its press
        self._presses = 0
        self._spoke: set[bytes] = set()  # publishers of which a message was received
        self._spoke_kept: set[bytes] = set()  # those of them that the transient local reader heard
        self._discovered_s: dict[bytes, float] = {}  # publisher -> when ROS first named it
        self._heard: deque[tuple[object, ...]] = deque(maxlen=KEPT)  # newest messages, see `_is_repetition`
        self._times_s: deque[float] = deque(maxlen=FLOOD)
        self._waited = 0  # messages since the queue was last empty
        self._called = 0  # number of callbacks of this object that have run
        self._news: deque[Callable[[], object]] = deque(maxlen=KEPT)  # for the executor's thread, called by `look`
        self._ended = threading.Event()
        # One above the executor's thread, as the tick thread.
        self._priority = priority + 1 if priority else 0
        self._thread = threading.Thread(target=self._listen, name="emergency stop", daemon=True)
        # A separate node, because a separate thread needs a separate executor.
        self.node = Node(
            f"{node.get_name()}_stop",
            namespace=node.get_namespace(),
            use_global_arguments=False,
            enable_rosout=False,
            start_parameter_services=False,
        )
        self.topic = node.resolve_topic_name(TOPIC)
        # A publisher that only the volatile reader matches is heard, so the other one reports no incompatible QoS.
        unreported = SubscriptionEventCallbacks(use_default_callbacks=False)
        for callback, profile, events in (
            (self._on_kept_message, KEPT_QUEUE, unreported),
            (self._on_message, VOLATILE_QUEUE, qos.subscription(TOPIC, self._on_event)),
        ):
            self.node.create_subscription(Bool, self.topic, callback, profile, raw=True, event_callbacks=events)
        name = node.resolve_service_name("~/stop")
        service = self.node.create_service(Trigger, name, self._on_service, qos_profile=REQUESTS)
        if BACKEND != "rclpy":
            service.on_arrival = self._on_request
            self.node.get_logger().divert(lambda say, record: self._news.append(partial(say, record)))

    def _on_event(self, report: Callable[[], None]) -> None:
        """An event of the subscription, which `look` reports."""
        self._called += 1
        self._news.append(report)

    # -- the thread ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Messages since the node was made are still in the queue."""
        self._thread.start()

    def working(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread and its node."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.node.destroy_node()
        if BACKEND != "rclpy":
            self.node.get_logger().divert(None)
        self._take_over()  # its last log lines

    def _listen(self) -> None:
        enter_realtime(self._priority)  # the process's is already set (`Actuator.start`)
        idle = 0
        # Made here, after the process's own executor: the first one reads what other nodes announce of themselves,
        # which may be large, and this thread must neither read that nor wait for who does.
        with closing(Callbacks(self.node)) as callbacks:
            while not self._ended.is_set():
                called = self._called
                try:
                    # Turns that do not wait show whether the queue is empty, even for a moment: messages that come
                    # faster than a wait ends are not a flood.
                    if not callbacks.spin_once(wait_s=0.0 if self._waited >= LOOK else WAKE_S):
                        return  # this ends the process, because the next message would not be received
                except ExternalShutdownException:
                    return
                idle = idle + 1 if self._called == called else 0
                if idle >= EMPTY:
                    self._waited = 0

    def _on_kept_message(self, payload: bytes, info: Any) -> None:
        """A message of the transient local reader."""
        self._on_message(payload, info, is_kept=True)

    def _on_message(self, payload: bytes, info: Any, is_kept: bool = False) -> None:
        """Read the Bool, latch, and only then do what could fail. is_kept: heard by the transient local reader."""
        refusal = ""
        pressed = None
        try:
            if len(payload) > MAX_BYTES:
                raise ValueError(f"at most {MAX_BYTES}")
            if bytes(payload[4:5]) not in (b"\0", b"\1"):  # rclpy takes any other byte for true
                raise ValueError("no truth value")
            pressed = bool(deserialize_message(payload, Bool).data)
        except Exception as error:  # noqa: BLE001  each ROS raises errors of its own for bytes that are no Bool
            refusal = f"{len(payload)} bytes on {self.topic}: {error}"
        if pressed:
            self._latch(PRESSED)
        self._called += 1
        publisher = publisher_of(info)
        if not refusal and (publisher != UNKNOWN or not identifies(info)):
            with self._lock:
                self._spoke.add(publisher)
                if is_kept:
                    self._spoke_kept.add(publisher)
        if self._is_repetition(publisher, info, pressed):
            return
        self._count_message()
        if refusal:
            self._news.append(partial(self._refused.add, TOPIC, refusal))
        elif pressed:
            self._note_press(publisher)
        else:
            self._note_release(publisher)

    def _is_repetition(self, publisher: bytes, info: Any, pressed: bool | None) -> bool:
        """Whether the other reader has already received this message: publisher, time, number and content are equal."""
        try:
            stamp_ns = int(info["source_timestamp"])
            message = (publisher, stamp_ns, info.get("publication_sequence_number"), pressed)
        except Exception:  # noqa: BLE001  nothing is known of the message: it counts
            return False
        if stamp_ns <= 0:
            return False
        if message in self._heard:
            return True
        self._heard.append(message)
        return False

    def _count_message(self) -> None:
        """Latch if more messages came than the queue can safely hold."""
        now_s = time.monotonic()
        self._waited += 1
        self._times_s.append(now_s)
        if len(self._times_s) == FLOOD and now_s - self._times_s[0] < 1.0:
            self._press(UNKNOWN, FLOODED)
        elif self._waited > FLOOD:
            self._press(UNKNOWN, BACKLOG)

    def _press(self, publisher: bytes, reason: str) -> None:
        self._latch(reason)
        self._note_press(publisher)

    def _note_press(self, publisher: bytes) -> None:
        with self._lock:
            self._presses += 1
            known = publisher if len(self._down) < KEPT else UNKNOWN
            self._down[known] = self._presses

    def _note_release(self, publisher: bytes) -> None:
        """False releases the same publisher's True; if the publisher is not identified it releases nothing."""
        if publisher != UNKNOWN:
            with self._lock:
                self._down.pop(publisher, None)

    def _on_request(self) -> None:
        """A request has no content, so its arrival is enough."""
        self._latch(REQUESTED)
        self._called += 1

    def _on_service(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._on_request()  # rclpy has no arrival callback; a second call is harmless
        response.success, response.message = True, "stopped"
        return response

    # -- the executor's thread ----------------------------------------------------------------------------

    def look(self) -> None:
        """Process what the thread has queued: events of the subscription, unreadable messages, log lines."""
        self._take_over()
        if len(self._spoke) > KEPT:
            self.present()  # drops publishers that are gone

    def _take_over(self) -> None:
        while self._news:
            self._news.popleft()()

    def publishers(self) -> dict[bytes, str]:
        """The topic's current publishers: gid -> name of the node. Taken from the list of publishers, because rclpy's
        count_publishers does not remap the name."""
        return {bytes(info.endpoint_gid): publisher_name(info) for info in self._publishers_info()}

    def _publishers_info(self) -> list[Any]:
        """What ROS says of the topic's publishers; notes when each was discovered."""
        infos = list(self._owner.get_publishers_info_by_topic(TOPIC))
        now_s = time.monotonic()
        discovered_s = self._discovered_s
        self._discovered_s = {}
        for info in infos:
            gid = bytes(info.endpoint_gid)
            self._discovered_s[gid] = discovered_s.get(gid, now_s)
        return infos

    def unheard(self) -> list[str]:
        """Nodes whose last message may still be on its way: discovered a moment ago, and no message of them came."""
        kept = {bytes(info.endpoint_gid): info for info in self._publishers_info() if _keeps_its_last_word(info)}
        with self._lock:
            spoke = set(self._spoke_kept)
        if UNKNOWN in spoke and len(kept) == 1:  # nobody else can have said it
            return []
        limit_s = time.monotonic() - HISTORY_S
        silent = [info for gid, info in kept.items() if gid not in spoke and self._discovered_s[gid] > limit_s]
        return sorted({publisher_name(info) for info in silent})

    def deaf_to(self) -> list[str]:
        """Nodes whose messages are not received: DDS does not match a publisher that is not reliable, or of another
        type."""
        return sorted({publisher_name(info) for info in self._publishers_info() if not _can_be_heard(info)})

    @property
    def pressed(self) -> bool | None:
        """Whether any publisher's newest message is True; None if no message came."""
        with self._lock:
            return bool(self._down) if self._down or self._spoke else None

    def present(self) -> bool:
        """Whether there is a publisher whose last message a later actuator hears too, and a message of it came."""
        infos = self._publishers_info()
        alive = {bytes(info.endpoint_gid) for info in infos}
        kept = {bytes(info.endpoint_gid) for info in infos if _keeps_its_last_word(info)}
        with self._lock:
            self._spoke &= alive | self._down.keys() | {UNKNOWN}
            self._spoke_kept &= kept | {UNKNOWN}
            return bool(kept) and bool(self._spoke_kept)

    def pressers(self) -> list[str]:
        """The publishers that have pressed and not released, as text."""
        alive = self.publishers()
        with self._lock:
            down = list(self._down)
        return sorted(alive.get(who, "a publisher that is gone" if who else "an unknown publisher") for who in down)

    def release(self) -> tuple[bool, str]:
        """Release what publishers have pressed that cannot release it themselves: they are gone or unknown.

        If a present publisher still presses: (False, why)."""
        with self._lock:
            before = dict(self._down)
        alive = self.publishers()
        gone = {who: number for who, number in before.items() if who not in alive}
        with self._lock:
            for who, number in gone.items():
                if self._down.get(who) == number:  # not pressed again meanwhile
                    del self._down[who]
        if still := self.pressers():
            return False, f"still pressed by {', '.join(still)}: release it there"
        return True, "released; disarm, then arm" if gone else "nothing was pressed"
