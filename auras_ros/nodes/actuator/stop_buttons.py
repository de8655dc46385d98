"""The buttons of the emergency stop, as ROS and what they said show them: who is there, who presses, who is missing.

Used in the executor's thread only. It reads what the emergency stop's thread has noted (`stop_words`), and latches
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from auras_ros.nodes.actuator.stop_words import MAX_PUBLISHERS, REQUIRED_STOP_QOS, StopTopic, StopWords
from auras_ros.nodes.common.stop_signature import SIGNED
from auras_ros.nodes.common.topic_causes import NAME_UNKNOWN, endpoint_node
from auras_ros.ros import DurabilityPolicy, Node, ReliabilityPolicy
from auras_ros.ros.identity import IDENTIFIES_PUBLISHERS, UNKNOWN

# A publisher that keeps its last message repeats it to a new reader, with Fast DDS up to its heartbeat period of 3 s
# later. So long after its discovery the publisher may still have something to say.
HISTORY_S = 5.0
DEAF_S, MAX_RENEWAL_PAUSE_S = 1.0, 16.0  # a required topic is read anew after this silence, then after growing pauses
BOOL = "std_msgs/msg/Bool"
BUTTON_HINT = "`auras button` does"


def _can_be_heard(info: Any) -> bool:
    return bool(info.topic_type == BOOL and info.qos_profile.reliability == ReliabilityPolicy.RELIABLE)


def _keeps_its_last_word(info: Any) -> bool:
    """Whether an actuator that starts later hears this publisher's last message."""
    return _can_be_heard(info) and bool(info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL)


class StopButtons:
    """Asks `node` who publishes."""

    def __init__(self, node: Node, words: StopWords) -> None:
        self._node, self._words, self.rules = node, words, words.rules
        self._names: dict[bytes, str] = {}  # publisher -> node, as ROS last said
        self._next_renewal: dict[str, tuple[float, float]] = {}  # topic -> when, and the pause after that

    def look(self) -> list[str]:
        """Ask ROS. Returns why a required button cannot be relied on: it has vanished, or there is a second one whose
        words cannot be told apart."""
        reasons = []
        for topic in self._words.topics:
            infos = self._publishers_info(topic)
            reasons += [f"{name} on {topic.name} is gone" for name in self._gone(topic, infos)]
            if second := self._second(topic, infos):
                reasons.append(second)
        return reasons

    def _gone(self, topic: StopTopic, infos: list[Any]) -> list[str]:
        """Names of the buttons that counted, and that ROS knows no more. They are forgotten."""
        if self.rules.key is not None:
            infos = self._node.get_publishers_info_by_topic(f"{topic.name}/{SIGNED}")
        present = {bytes(info.endpoint_gid) for info in infos}
        with self._words.lock:
            counted = set(topic.heard()) if self.rules.repeats else set(topic.spoke_kept)
            if self.rules.key is None and UNKNOWN not in counted:
                gone = counted - present
            else:  # which publisher is which button is not known
                gone = set() if present else counted
            for who in gone:
                topic.forget(who)
        return sorted(self.name(who) for who in gone)

    def _second(self, topic: StopTopic, infos: list[Any]) -> str:
        """Why nobody can say whose words are heard on a required topic; empty if it is known."""
        if not self.rules.repeats or self.rules.key is not None or IDENTIFIES_PUBLISHERS:
            return ""
        names = sorted(endpoint_node(info) for info in infos if _can_be_heard(info))
        if len(names) < 2:
            return ""
        return f"{', '.join(names)} publish {topic.name}, and this rclpy does not tell whose words are heard"

    def deaf_topics(self) -> list[str]:
        """Required topics that are published and on which nothing was heard for a while: their readers may be deaf.
        Each is returned once, then after growing pauses."""
        return [topic.name for topic in self._words.topics if self.rules.repeats and self._is_deaf(topic)]

    def _is_deaf(self, topic: StopTopic) -> bool:
        now_s = time.monotonic()
        with self._words.lock:
            heard_s = max((button.heard_s for button in topic.buttons.values()), default=float("-inf"))
        if not topic.discovered_s or now_s - heard_s <= DEAF_S:
            self._next_renewal.pop(topic.name, None)
            return False
        first_s = now_s if topic.buttons else now_s + DEAF_S
        next_s, pause_s = self._next_renewal.setdefault(topic.name, (first_s, DEAF_S))
        if now_s < next_s:
            return False
        self._next_renewal[topic.name] = (now_s + pause_s, min(2 * pause_s, MAX_RENEWAL_PAUSE_S))
        return True

    def name(self, who: bytes) -> str:
        """The node of a publisher, or the name that a signed word has."""
        if self.rules.key is not None:
            return who.decode(errors="replace")
        return self._names.get(who, "the button")

    def publishers(self) -> dict[bytes, str]:
        """The topics' current publishers: gid -> name of the node. Taken from the list of publishers, because rclpy's
        count_publishers does not remap the name."""
        return {bytes(info.endpoint_gid): endpoint_node(info) for info in self._all_infos()}

    def _all_infos(self) -> list[Any]:
        return [info for topic in self._words.topics for info in self._publishers_info(topic)]

    def _publishers_info(self, topic: StopTopic) -> list[Any]:
        """What ROS says of the topic's publishers; notes when each was discovered."""
        infos = list(self._node.get_publishers_info_by_topic(topic.name))
        now_s = time.monotonic()
        discovered_s = topic.discovered_s
        topic.discovered_s = {}
        for info in infos:
            gid = bytes(info.endpoint_gid)
            topic.discovered_s[gid] = discovered_s.get(gid, now_s)
        if len(self._names) >= MAX_PUBLISHERS:
            self._names = {}
        for info in infos:
            gid, name = bytes(info.endpoint_gid), endpoint_node(info)
            if (
                name != NAME_UNKNOWN or gid not in self._names
            ):  # a node that ends may lose its name before its endpoints
                self._names[gid] = name
        return infos

    def unheard(self) -> list[str]:
        """Nodes whose last message may still be on its way: discovered a moment ago, and no message of them came."""
        return sorted({name for topic in self._words.topics for name in self._unheard(topic)})

    def _unheard(self, topic: StopTopic) -> list[str]:
        infos = [info for info in self._publishers_info(topic) if _keeps_its_last_word(info)]
        kept = {bytes(info.endpoint_gid): info for info in infos}
        with self._words.lock:
            spoke = set(topic.spoke_kept)
        if UNKNOWN in spoke and len(kept) == 1:  # nobody else can have said it
            return []
        limit_s = time.monotonic() - HISTORY_S
        silent = [info for gid, info in kept.items() if gid not in spoke and topic.discovered_s[gid] > limit_s]
        return [endpoint_node(info) for info in silent]

    def deaf_to(self) -> list[str]:
        """Nodes whose messages are not received: DDS does not match a publisher that is not reliable, or of another
        type."""
        return sorted({endpoint_node(info) for info in self._all_infos() if not _can_be_heard(info)})

    @property
    def pressed(self) -> bool | None:
        """Whether any publisher's newest message is True; None if no message came."""
        with self._words.lock:
            if any(topic.down for topic in self._words.topics):
                return True
            return False if any(topic.spoke or topic.buttons for topic in self._words.topics) else None

    @property
    def latched(self) -> str:
        """Why only ~/release_stop releases; empty if nothing is latched, or no button is required."""
        with self._words.lock:
            return self._words.latched

    @property
    def bad_words(self) -> int:
        """Number of signed words that were refused."""
        return sum(topic.bad_words for topic in self._words.topics)

    def drop_gone(self) -> None:
        """Forget publishers that are gone, if many have spoken."""
        for topic in self._words.topics:
            if len(topic.spoke) > MAX_PUBLISHERS:
                alive = {bytes(info.endpoint_gid) for info in self._publishers_info(topic)} | {UNKNOWN}
                with self._words.lock:
                    topic.spoke &= alive | topic.down.keys()
                    topic.spoke_kept &= alive

    def _is_present(self, topic: StopTopic) -> bool:
        """Whether there is a publisher whose last message a later actuator hears too, and a message of it came."""
        infos = self._publishers_info(topic)
        kept = {bytes(info.endpoint_gid) for info in infos if _keeps_its_last_word(info)}
        with self._words.lock:
            return bool(kept) and bool(topic.spoke_kept & (kept | {UNKNOWN}))

    def missing(self) -> str:
        """Why a required button cannot be relied on; empty if all can, or none is required."""
        if not self.rules.required:
            return ""
        return next((reason for topic in self._words.topics if (reason := self._missing(topic))), "")

    def _missing(self, topic: StopTopic) -> str:
        if not self.rules.repeats:
            return "" if self._is_present(topic) else f"nobody publishes {topic.name} as {REQUIRED_STOP_QOS}"
        infos = self._publishers_info(topic)
        if second := self._second(topic, infos):
            return second
        now_s = time.monotonic()
        limit_s = self.rules.max_silence_s
        with self._words.lock:
            heard = topic.heard()
            late = [who for who, button in heard.items() if now_s - button.heard_s > limit_s]
        what = f"{topic.name}/{SIGNED}" if self.rules.key is not None else topic.name
        if late:
            return f"{self.name(late[0])} on {what} was silent for more than {limit_s * 1e3:g} ms"
        if heard:
            return ""
        if not infos:
            return f"nobody publishes {topic.name}"
        names = ", ".join(sorted({endpoint_node(info) for info in infos}))
        if topic.bad_words:
            return f"no button signs {what} with our key ({topic.bad_words} words were refused; publishers: {names})"
        return f"{names} does not repeat {what} within {limit_s * 1e3:g} ms ({BUTTON_HINT})"

    def pressers(self) -> list[str]:
        """The publishers that have pressed and not released, as text."""
        alive = self.publishers()
        with self._words.lock:
            down = [who for topic in self._words.topics for who in topic.down]
            signed = {who for topic in self._words.topics for who in topic.buttons if self.rules.key is not None}
        return sorted(self._presser(who, alive, signed) for who in down)

    def _presser(self, who: bytes, alive: dict[bytes, str], signed: Collection[bytes]) -> str:
        if who in signed:
            return who.decode(errors="replace")
        return alive.get(who, "a publisher that is gone" if who else "an unknown publisher")

    def release(self) -> tuple[bool, str]:
        """Release what publishers have pressed that cannot release it themselves: they are gone or unknown.

        If a present publisher still presses, or a required button is not heard: (False, why)."""
        with self._words.lock:
            before = self._words.presses
        if missing := self.missing():
            return False, f"not released: {missing}"
        alive = self.publishers()
        with self._words.lock:
            pressed_since = self._words.presses != before  # perhaps by one that is not in `alive` yet
            was_latched = bool(self._words.latched)
            down = [(topic, who) for topic in self._words.topics for who in topic.down]
            still = [(topic, who) for topic, who in down if self._must_release_itself(topic, who, alive)]
            gone = [(topic, who) for topic, who in down if (topic, who) not in still]
            if not pressed_since:
                for topic, who in gone:
                    del topic.down[who]
                if not still:
                    self._words.latched = ""
        if still:
            signed = {who for _, who in still} if self.rules.key is not None else ()
            names = ", ".join(sorted({self._presser(who, alive, signed) for _, who in still}))
            return False, f"still pressed by {names}: release it there"
        if pressed_since:
            return False, "pressed again at this moment: try again"
        return True, "released; disarm, then arm" if gone or was_latched else "nothing was pressed"

    def _must_release_itself(self, topic: StopTopic, who: bytes, alive: dict[bytes, str]) -> bool:
        """Whether a publisher that has pressed is there to release. With a key that is a button that signs; what is
        not signed was released by nobody."""
        if self.rules.key is not None:
            return who in topic.buttons
        if who == UNKNOWN and self.rules.repeats and not IDENTIFIES_PUBLISHERS:
            return any(button.pressed for button in topic.buttons.values())
        return who in alive
