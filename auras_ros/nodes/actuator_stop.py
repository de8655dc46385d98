"""The emergency stop: a topic and a service, in a thread that does nothing else.

Every True that came is latched, whatever came after it and however busy the node is: the words wait in a deep queue
for this thread alone, and should more come than the queue is sure to hold, that is taken for a press. Each publisher's
word counts for itself where the middleware says whose it is (ours does, rclpy 7.1 does not): False takes back nobody
else's True, and a publisher that is gone has not released. What is left is released by a person, by service.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from auras_ros.nodes.diagnostics import QosWatch
from auras_ros.nodes.realtime import enter_realtime
from auras_ros.nodes.untrusted import Refused
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
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.msg import Bool
from auras_ros.ros.srv import Trigger

TOPIC = "emergency_stop"
KEPT = 1000  # words that wait for the thread
FLOOD = KEPT // 2  # so many within a second: some that came while the thread stood still may have been pushed out
MAX_BYTES = 64
PRESSED, FLOODED = "emergency stop pressed", f"emergency_stop: more than {FLOOD} words in a second: one may be lost"
UNKNOWN = b""  # the publisher of a word, where nobody says whose it is
QUEUE = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def _name(info: Any) -> str:
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def _can_be_heard(offered: QoSProfile) -> bool:
    return (offered.reliability, offered.durability) == (QUEUE.reliability, QUEUE.durability)


class EmergencyStop:
    """`latch(reason)` is called by the thread; everything else here is of the executor's thread."""

    def __init__(self, node: Node, latch: Callable[[str], object], refused: Refused, qos: QosWatch) -> None:
        self._owner, self._latch, self._refused = node, latch, refused
        self._lock = threading.Lock()  # held for a few instructions
        self._down: dict[bytes, int] = {}  # publisher -> number of its press
        self._presses = 0
        self._spoke: set[bytes] = set()
        self._times_s: deque[float] = deque(maxlen=FLOOD)
        self._news: deque[tuple[Callable[[Any], None], Any]] = deque(maxlen=100)  # for the executor's thread
        self._events: deque[tuple[Callable[[Any], None], Any]] = deque(maxlen=100)  # of QoS, for the same
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="emergency stop", daemon=True)
        # A node of its own, because a thread of its own needs an executor of its own.
        self.node = Node(
            f"{node.get_name()}_stop",
            namespace=node.get_namespace(),
            use_global_arguments=False,
            enable_rosout=False,
            start_parameter_services=False,
        )
        self.topic = node.resolve_topic_name(TOPIC)
        self.node.create_subscription(
            Bool,
            self.topic,
            self._on_word,
            QUEUE,
            raw=True,
            event_callbacks=self._handed_over(qos.subscription(TOPIC)),
        )
        self.node.create_service(Trigger, node.resolve_service_name("~/stop"), self._on_service)

    def _handed_over(self, events: SubscriptionEventCallbacks) -> SubscriptionEventCallbacks:
        """The same events, called back by `look`."""

        def later(callback: Callable[[Any], None]) -> Callable[[Any], None]:
            return lambda info: self._events.append((callback, info))

        made = SubscriptionEventCallbacks()
        for name in ("deadline", "liveliness", "message_lost", "incompatible_qos", "matched"):
            if (callback := getattr(events, name)) is not None:
                setattr(made, name, later(callback))
        return made

    # -- the thread ---------------------------------------------------------------------------------------

    def start(self, priority: int) -> None:
        """Begin to listen. What was said since the node was built has waited."""
        self._priority = priority
        self._callbacks = Callbacks(self.node)
        self._thread.start()

    def working(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """End the thread and its node."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._callbacks.close()
        self.node.destroy_node()

    def _listen(self) -> None:
        enter_realtime(self._priority + 1 if self._priority else 0)  # as the tick thread: before the executor's
        while not self._ended.is_set():
            try:
                if not self._callbacks.turn():
                    return  # which ends the process: nobody would hear the next word
            except ExternalShutdownException:
                return

    def _on_word(self, payload: bytes, info: dict[str, Any]) -> None:
        now_s, who = time.monotonic(), bytes(info.get("publisher_gid", UNKNOWN))
        self._times_s.append(now_s)
        if len(self._times_s) == FLOOD and now_s - self._times_s[0] < 1.0:
            self._press(UNKNOWN, FLOODED)
        try:
            if len(payload) > MAX_BYTES:
                raise ValueError(f"at most {MAX_BYTES}")
            pressed = deserialize_message(payload, Bool).data
        except (ValueError, RuntimeError) as error:  # ours, rclpy's
            self._news.append((self._say_unreadable, f"{len(payload)} bytes on {self.topic}: {error}"))
            return
        if pressed:
            self._press(who, PRESSED)
        else:
            self._release(who)

    def _press(self, who: bytes, reason: str) -> None:
        with self._lock:
            self._presses += 1
            who = who if len(self._down) < KEPT else UNKNOWN
            self._down[who] = self._presses
            self._spoke.add(who)
        self._latch(reason)

    def _release(self, who: bytes) -> None:
        """False takes back the same publisher's True; where nobody says whose it is, it takes back nothing."""
        with self._lock:
            if who != UNKNOWN:
                self._down.pop(who, None)
            if who != UNKNOWN or BACKEND == "rclpy":  # ours knows of everybody who is still there
                self._spoke.add(who)

    def _on_service(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._latch("stop requested")
        response.success, response.message = True, "stopped"
        return response

    # -- the executor's thread ----------------------------------------------------------------------------

    def _say_unreadable(self, text: str) -> None:
        self._refused.add(TOPIC, text)

    def look(self) -> None:
        """Take over what the thread left: what happened to the subscription, what could not be read."""
        for news in (self._events, self._news):
            while news:
                callback, info = news.popleft()
                callback(info)
        if len(self._spoke) > KEPT:
            self.present()  # forgets those that are gone

    def publishers(self) -> dict[bytes, str]:
        """Who publishes the topic now: gid -> name of the node. By their list: rclpy counts a topic without remapping
        its name."""
        found = self._owner.get_publishers_info_by_topic(TOPIC)
        return {bytes(each.endpoint_gid): _name(each) for each in found}

    def deaf_to(self) -> list[str]:
        """Nodes whose publisher nothing passes from: DDS matches none that offers less than is asked for here."""
        found = self._owner.get_publishers_info_by_topic(TOPIC)
        return sorted({_name(each) for each in found if not _can_be_heard(each.qos_profile)})

    @property
    def pressed(self) -> bool | None:
        """Whether anybody's newest word is True; None where nobody has said anything."""
        with self._lock:
            return bool(self._down) if self._spoke else None

    def present(self) -> bool:
        """Whether somebody publishes it who has also spoken."""
        alive = self.publishers().keys()
        with self._lock:
            self._spoke &= alive | self._down.keys() | {UNKNOWN}
            return bool(alive) and (UNKNOWN in self._spoke or not self._spoke.isdisjoint(alive))

    def pressers(self) -> list[str]:
        """Who has pressed and not released, for people."""
        alive = self.publishers()
        with self._lock:
            down = list(self._down)
        return sorted(alive.get(who, "a publisher that is gone" if who else "a publisher unknown") for who in down)

    def release(self) -> tuple[bool, str]:
        """Take back what those have pressed who cannot do it themselves: they are gone, or nobody knows who it was.

        Whoever is there and still says True is left: (False, why)."""
        with self._lock:
            before = dict(self._down)
        alive = self.publishers()
        gone = {who: number for who, number in before.items() if who not in alive}
        with self._lock:
            for who, number in gone.items():
                if self._down.get(who) == number:  # not pressed once more meanwhile
                    del self._down[who]
        if still := self.pressers():
            return False, f"still pressed by {', '.join(still)}: release it there"
        return True, "released; disarm, then arm" if gone else "nothing was pressed"
