"""The emergency stop: a topic and a service, in a thread that does nothing else.

Every True that arrives is latched, whatever follows it and however busy the node is: messages wait in a deep queue for
this thread only, and if more come than the queue can safely hold, that counts as a press. Requests of the service wait
in such a queue too; with our ROS layer every message on its request topic counts, even an unreadable one. With our
layer the thread does not log either: the executor's thread logs for it, because writing a log line may block.

Each publisher counts separately if the middleware identifies the publisher of a message (ours does, rclpy 7.1 does
not): False releases only the same publisher's True, and a publisher that disappears does not release. What remains
pressed is released by a person, through the service ~/release_stop.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from auras_ros.nodes.actuator.bounded_subscription import RefusedMessages
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
    deserialize_message,
)
from auras_ros.ros.callbacks import WAKE_S, Callbacks
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
PRESSED, FLOODED = "emergency stop pressed", f"emergency_stop: more than {FLOOD} messages in a second: one may be lost"
BACKLOG = f"emergency_stop: more than {FLOOD} messages waited to be read: one may be lost"
REQUESTED = "stop requested"
UNKNOWN = b""  # the publisher of a message, if the middleware does not identify it
QUEUE = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# For a service whose requests must not be overwritten by later ones.
REQUESTS = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE)
BOOL = "std_msgs/msg/Bool"


def _can_be_heard(info: Any) -> bool:
    offered = info.qos_profile
    wanted = (BOOL, QUEUE.reliability, QUEUE.durability)
    return (info.topic_type, offered.reliability, offered.durability) == wanted


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
        self._spoke: set[bytes] = set()
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
        self.node.create_subscription(
            Bool,
            self.topic,
            self._on_word,
            QUEUE,
            raw=True,
            event_callbacks=qos.subscription(TOPIC, self._on_event),
        )
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

    def _on_word(self, payload: bytes, info: dict[str, Any]) -> None:
        now_s, who = time.monotonic(), bytes(info.get("publisher_gid", UNKNOWN))
        self._called += 1
        self._waited += 1
        self._times_s.append(now_s)
        if len(self._times_s) == FLOOD and now_s - self._times_s[0] < 1.0:
            self._press(UNKNOWN, FLOODED)
        elif self._waited > FLOOD:
            self._press(UNKNOWN, BACKLOG)
        try:
            if len(payload) > MAX_BYTES:
                raise ValueError(f"at most {MAX_BYTES}")
            pressed = deserialize_message(payload, Bool).data
        except (ValueError, RuntimeError) as error:  # ours, rclpy's
            self._news.append(partial(self._refused.add, TOPIC, f"{len(payload)} bytes on {self.topic}: {error}"))
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
        """False releases the same publisher's True; if the publisher is not identified it releases nothing."""
        with self._lock:
            if who != UNKNOWN:
                self._down.pop(who, None)
            if who != UNKNOWN or BACKEND == "rclpy":  # our layer identifies every publisher that still exists
                self._spoke.add(who)

    def _on_request(self) -> None:
        """A request has no content, so its arrival is enough."""
        self._called += 1
        self._latch(REQUESTED)

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
        found = self._owner.get_publishers_info_by_topic(TOPIC)
        return {bytes(each.endpoint_gid): publisher_name(each) for each in found}

    def deaf_to(self) -> list[str]:
        """Nodes whose messages are not received: DDS does not match a publisher that offers a weaker QoS, or another
        type."""
        found = self._owner.get_publishers_info_by_topic(TOPIC)
        return sorted({publisher_name(each) for each in found if not _can_be_heard(each)})

    @property
    def pressed(self) -> bool | None:
        """Whether any publisher's newest message is True; None if no message came."""
        with self._lock:
            return bool(self._down) if self._spoke else None

    def present(self) -> bool:
        """Whether there is a publisher from which a message was received."""
        alive = self.publishers().keys()
        with self._lock:
            self._spoke &= alive | self._down.keys() | {UNKNOWN}
            return bool(alive) and (UNKNOWN in self._spoke or not self._spoke.isdisjoint(alive))

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
            if BACKEND != "rclpy":  # our layer identifies publishers, so an unknown one is not a present one
                self._spoke.discard(UNKNOWN)
        if still := self.pressers():
            return False, f"still pressed by {', '.join(still)}: release it there"
        return True, "released; disarm, then arm" if gone else "nothing was pressed"
