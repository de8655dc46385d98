"""The emergency stop: topics and a service, in a thread that does nothing else.

Every True that arrives is latched, whatever follows it and however busy the node is. The latch comes first: before it
only the Bool is read, and a message that was received before is left out (if asking that fails, it counts). Messages
wait in a deep queue for this thread only, and if more come than the queue can safely hold, that counts as a press.
Requests of the service wait in such a queue too; with our ROS layer every message on its request topic counts, even an
unreadable one. With our layer the thread does not log either: the executor's thread logs for it, because writing a log
line may block.

Two readers hear each topic. The transient local one also hears what a button said before this node started. The
volatile one also hears publishers that keep nothing for late joiners, as `ros2 topic pub` offers. A message that both
hear counts once.

Each publisher counts separately if the middleware identifies the publisher of a message (our layer and rclpy 9 do,
rclpy 7.1 does not): False releases only the same publisher's True, and a publisher that disappears does not release.
What remains pressed is released by a person, through the service ~/release_stop.

A required button repeats its state (`StopRules`). Its silence, and its end, latch like a press while commands are
active. Waiting messages are read before silence is judged. Once latched, no message releases: only ~/release_stop does,
and only while every required button is heard and released. With a key a required word counts only if it is signed
(`stop_signature`); an unsigned True still latches.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any

from auras_ros.nodes.actuator.realtime import enter_realtime
from auras_ros.nodes.actuator.stop_buttons import StopButtons
from auras_ros.nodes.actuator.stop_words import StopRules, StopTopic, StopWords
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.qos import BEST_EFFORT
from auras_ros.nodes.common.stop_signature import (
    CHALLENGE_PERIOD_S,
    CHALLENGE_TOPIC,
    MAX_CHARS,
    SIGNED,
    BadWordError,
    Challenges,
    challenge_text,
)
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
from auras_ros.ros.bounded import RefusedMessages, read_message
from auras_ros.ros.callbacks import WAKE_S, Callbacks
from auras_ros.ros.identity import UNKNOWN, identifies, publisher_of
from auras_ros.ros.msg import Bool, String
from auras_ros.ros.srv import Trigger

KEPT = 1000  # length of the queue
# If so many messages come within a second, or since the queue was last empty, some may have been lost while the thread
# did not run or read too slowly.
FLOOD = KEPT // 2
LOOK = FLOOD // 2  # from this number on, check whether the queue is empty
EMPTY = 5  # the queue is empty after so many turns without a callback; a few may be the middleware's own
MAX_BYTES = 64
LOOK_PERIOD_S = 0.25  # how often ROS is asked who publishes on the required topics
PRESSED = "emergency stop pressed"
FLOODED = f"emergency_stop: more than {FLOOD} messages in a second: one may be lost"
BACKLOG = f"emergency_stop: more than {FLOOD} messages waited to be read: one may be lost"
REQUESTED = "stop requested"
KEPT_QUEUE = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
VOLATILE_QUEUE = QoSProfile(depth=KEPT, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE)
REQUESTS = VOLATILE_QUEUE  # for a service whose requests must not be overwritten by later ones


def _identity(topic: StopTopic, info: Any, pressed: bool | None) -> tuple[object, ...]:
    """What distinguishes a message from all others. Raises an error of any kind if the middleware does not say."""
    stamp_ns = int(info["source_timestamp"])
    if stamp_ns <= 0:
        raise ValueError("no time")
    return (topic.name, publisher_of(info), stamp_ns, info.get("publication_sequence_number"), pressed)


class EmergencyStop:
    """The thread calls `latch(reason)`, and records who has published and who has pressed, under the lock. All methods
    below the second heading are called in the executor's thread."""

    def __init__(
        self,
        node: Node,
        latch: Callable[[str], object],
        refused: RefusedMessages,
        qos: QosWatch,
        priority: int,
        rules: StopRules | None = None,
        is_live: Callable[[], bool] = lambda: True,
    ) -> None:
        """priority: the actuator's realtime priority, 0: none. is_live: whether commands are active, so that silence
        latches. Nothing is read before `start`."""
        self._owner, self._latch, self._refused = node, latch, refused
        self.rules = rules or StopRules()
        self._is_live, self._qos = is_live, qos
        topics = [StopTopic(name, node.resolve_topic_name(name)) for name in self.rules.topics]
        self._words = StopWords(topics, self.rules)
        self.buttons = StopButtons(node, self._words)
        self._heard: deque[tuple[object, ...]] = deque(maxlen=KEPT)  # newest messages, see `_is_repetition`
        self._times_s: deque[float] = deque(maxlen=FLOOD)
        self._waited = 0  # messages since the queue was last empty
        self._called = 0  # number of callbacks of this object that have run
        self._news: deque[Callable[[], object]] = deque(maxlen=KEPT)  # for the executor's thread, called by `look`
        self._looked_s = float("-inf")  # when ROS was last asked who publishes
        self._renew: set[str] = set()  # topics whose readers the thread shall make anew
        self.renewals = 0
        self._ended = threading.Event()
        self._turned_s = time.monotonic()  # when the thread last ran
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
        self._readers: dict[str, list[Any]] = {topic.name: self._subscribe(topic) for topic in topics}
        self._challenges: Challenges | None = None
        self._challenge_at_s = 0.0
        if self.rules.key is not None:
            self._challenges = Challenges(self.rules.key, self.rules.max_silence_s)
            name = node.resolve_topic_name(f"~/{CHALLENGE_TOPIC}")
            self._challenge_publisher = self.node.create_publisher(String, name, BEST_EFFORT)
        name = node.resolve_service_name("~/stop")
        service = self.node.create_service(Trigger, name, self._on_service, qos_profile=REQUESTS)
        if BACKEND != "rclpy":
            service.on_arrival = self._on_request
            self.node.get_logger().divert(lambda say, record: self._news.append(partial(say, record)))

    def _subscribe(self, topic: StopTopic) -> list[Any]:
        """The readers of a topic."""
        # A publisher that only the volatile reader matches is heard, so the other one reports no incompatible QoS.
        unreported = SubscriptionEventCallbacks(use_default_callbacks=False)
        reported = self._qos.subscription(topic.label, self._on_event)
        on_kept = lambda payload, info: self._on_message(topic, payload, info, is_kept=True)  # noqa: E731
        on_message = lambda payload, info: self._on_message(topic, payload, info)  # noqa: E731
        on_signed = lambda payload, info: self._on_signed(topic, payload)  # noqa: E731
        wanted = [
            (Bool, topic.name, on_kept, KEPT_QUEUE, unreported),
            (Bool, topic.name, on_message, VOLATILE_QUEUE, reported),
        ]
        if self.rules.key is not None:
            wanted.append((String, f"{topic.name}/{SIGNED}", on_signed, VOLATILE_QUEUE, unreported))
        return [
            self.node.create_subscription(kind, name, callback, profile, raw=True, event_callbacks=events)
            for kind, name, callback, profile, events in wanted
        ]

    def _on_event(self, report: Callable[[], None]) -> None:
        """An event of the subscription, which `look` reports."""
        self._called += 1
        self._news.append(report)

    # -- the thread ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Messages since the node was made are still in the queue."""
        self._turned_s = time.monotonic()
        self._thread.start()

    def working(self) -> bool:
        return self._thread.is_alive()

    def stuck(self) -> str:
        """Why required buttons are not listened to: the thread does not run. Called in the tick thread; empty if it
        runs."""
        limit_s = self.rules.max_silence_s
        if self.rules.repeats and not self.has_run_within(limit_s):
            return f"emergency stop: its thread has not run for {limit_s * 1e3:g} ms"
        return ""

    def has_run_within(self, seconds: float) -> bool:
        """Whether the thread has run in that time."""
        return time.monotonic() - self._turned_s <= seconds

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
                self._challenge()
                called = self._called
                try:
                    if not callbacks.spin_once(wait_s=self._wait_s()):
                        return  # this ends the process, because the next message would not be received
                except ExternalShutdownException:
                    return
                self._turned_s = time.monotonic()
                idle = idle + 1 if self._called == called else 0
                if idle >= EMPTY:
                    self._waited = 0
                    self._judge_silence()
                    self._renew_readers()

    def _wait_s(self) -> float:
        """How long to wait for the next message."""
        # Turns that do not wait show whether the queue is empty, even for a moment: messages that come faster than a
        # wait ends are not a flood.
        if self._waited >= LOOK:
            return 0.0
        now_s = time.monotonic()
        wait_s = WAKE_S
        if self._challenges is not None:
            wait_s = min(wait_s, self._challenge_at_s - now_s)
        silent_at_s = self._words.silent_at_s() if self.rules.repeats else None
        if silent_at_s is not None:
            wait_s = min(wait_s, silent_at_s - now_s)
        return max(0.0, wait_s)

    def _challenge(self) -> None:
        """Publish a new challenge if it is time."""
        if self._challenges is None:
            return
        now_s = time.monotonic()
        if now_s >= self._challenge_at_s:
            self._challenge_at_s = now_s + CHALLENGE_PERIOD_S
            self._challenge_publisher.publish(String(data=challenge_text(self._challenges.new(now_s))))

    def _judge_silence(self) -> None:
        """Latch if a required button is silent, or if none counts on its topic. Nothing waits to be read."""
        if not self.rules.repeats:
            return
        limit_ms = self.rules.max_silence_s * 1e3
        for topic in self._words.topics:
            for who in self._words.take_silent(topic, time.monotonic()):
                self._latch_required(
                    f"{self.buttons.name(who)} on {topic.name} was silent for more than {limit_ms:g} ms"
                )
            # A state and no event: a pause may end just before it is judged, or fall between the check of arming and
            # arming itself.
            if not self._words.is_heard(topic):
                self._latch_required(f"no button repeats {topic.name} within {limit_ms:g} ms")

    def _latch_required(self, reason: str) -> None:
        """A required button cannot be relied on: latch if commands are active. Arming is refused anyhow."""
        if self._is_live():
            reason = f"emergency stop: {reason}"
            self._latch(reason)
            self._words.note_latch(reason)

    def _renew_readers(self) -> None:
        """Read topics with new readers that `look` found silent: one forged packet can make a reader deaf."""
        while self._renew:
            name = self._renew.pop()
            topic = next(topic for topic in self._words.topics if topic.name == name)
            for reader in self._readers[name]:
                self.node.destroy_subscription(reader)
            self._readers[name] = self._subscribe(topic)
            self.renewals += 1

    def _on_message(self, topic: StopTopic, payload: bytes, info: Any, is_kept: bool = False) -> None:
        """Read the Bool, latch, and only then do everything else. is_kept: heard by the transient local reader."""
        refusal = ""
        pressed = None
        try:
            if len(payload) > MAX_BYTES:
                raise ValueError(f"at most {MAX_BYTES}")
            if bytes(payload[4:5]) not in (b"\0", b"\1"):  # rclpy takes any other byte for true
                raise ValueError("no truth value")
            pressed = bool(deserialize_message(payload, Bool).data)
        except Exception as error:  # noqa: BLE001  each ROS raises errors of its own for bytes that are no Bool
            refusal = f"{len(payload)} bytes on {topic.name}: {error}"
        is_repetition = self._is_repetition(topic, info, pressed)
        if pressed and not is_repetition:
            self._latch(PRESSED)
        self._called += 1
        publisher = publisher_of(info)
        if not refusal and (publisher != UNKNOWN or not identifies(info)):
            self._words.note_word(topic, publisher, is_kept)
        if is_repetition:
            return
        self._note_message(topic, info, pressed)
        self._count_message(topic)
        if refusal:
            self._news.append(partial(self._refused.add, topic.label, refusal))
            return
        if pressed:
            self._words.note_press(topic, publisher, PRESSED)
        elif self.rules.key is None:  # an unsigned False is nothing
            self._words.note_release(topic, publisher)
        if self.rules.repeats and self.rules.key is None:
            self._words.note_repetition(topic, publisher, bool(pressed), time.monotonic())

    def _on_signed(self, topic: StopTopic, payload: bytes) -> None:
        """A word on TOPIC/signed: latch if it is a button's and says pressed."""
        assert self._challenges is not None
        self._called += 1
        self._count_message(topic)
        now_s = time.monotonic()
        try:
            if len(payload) > MAX_CHARS:
                raise BadWordError(f"at most {MAX_CHARS}")
            word = self._challenges.read(read_message(payload, String).data, topic.name, now_s)
        except ValueError as error:  # BadWordError, PayloadError
            topic.bad_words += 1
            text = f"{len(payload)} bytes on {topic.name}/{SIGNED}: {error}"
            self._news.append(partial(self._refused.add, f"{topic.name}/{SIGNED}", text))
            return
        if word.pressed:
            self._latch(PRESSED)
        who = word.button.encode()
        self._words.note_repetition(topic, who, word.pressed, word.challenged_s)
        if word.pressed:
            self._words.note_press(topic, who, PRESSED)
        else:
            self._words.note_release(topic, who)

    def _is_repetition(self, topic: StopTopic, info: Any, pressed: bool | None) -> bool:
        """Whether this message was received before: by the topic's other reader, or again by a new one, which is told
        what a publisher has kept. Publisher, time, number and content are equal. False if anything fails."""
        try:
            return _identity(topic, info, pressed) in self._heard
        except Exception:  # noqa: BLE001  nothing is known of the message: it counts
            return False

    def _note_message(self, topic: StopTopic, info: Any, pressed: bool | None) -> None:
        with suppress(Exception):
            self._heard.append(_identity(topic, info, pressed))

    def _count_message(self, topic: StopTopic) -> None:
        """Latch if more messages came than the queue can safely hold."""
        now_s = time.monotonic()
        self._waited += 1
        self._times_s.append(now_s)
        if len(self._times_s) == FLOOD and now_s - self._times_s[0] < 1.0:
            self._press(topic, FLOODED)
        elif self._waited > FLOOD:
            self._press(topic, BACKLOG)

    def _press(self, topic: StopTopic, reason: str) -> None:
        self._latch(reason)
        self._words.note_press(topic, UNKNOWN, reason)

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
        """Process what the thread has queued: events of the subscription, unreadable messages, log lines. Asks ROS
        from time to time whether the required buttons are still there."""
        self._take_over()
        self.buttons.drop_gone()
        if not self.rules.required or time.monotonic() - self._looked_s < LOOK_PERIOD_S:
            return
        self._looked_s = time.monotonic()
        for reason in self.buttons.look():
            self._latch_required(reason)
        for topic in self.buttons.deaf_topics():
            self._owner.get_logger().warning(f"{topic} is published and nothing is heard: reading it anew")
            self._renew.add(topic)

    def _take_over(self) -> None:
        while self._news:
            self._news.popleft()()
