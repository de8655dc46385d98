"""What was heard on one topic of the emergency stop: which publishers have pressed, and which repeat their state.

A button that is required repeats its state. It counts as heard once REPEATS words of it came in a row, and as silent
when no word came for longer than the limit. Words that come together count as one: they may be what a publisher has
kept of its past, which proves nothing.

Only bookkeeping: it latches nothing and asks ROS nothing. `StopWords` is shared by the emergency stop's thread and the
executor's; whoever reads or changes its topics holds its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from auras_ros.ros.identity import UNKNOWN

TOPIC = "emergency_stop"
STOP_QOS = "std_msgs/Bool, reliable"
REQUIRED_STOP_QOS = f"{STOP_QOS} and transient local"
REPEATS = 3
TOGETHER_S = 0.01  # a button repeats its state at most a hundred times a second
MAX_PUBLISHERS = 1000


@dataclass(frozen=True)
class StopRules:
    """What is asked of the buttons."""

    topics: tuple[str, ...] = (TOPIC,)
    required: bool = False
    # The longest pause between two words of a required button; 0: it says changes only, and its silence means nothing.
    max_silence_s: float = 0.5
    # Shared with the buttons; None: words are not signed.
    key: bytes | None = None

    @property
    def repeats(self) -> bool:
        """Whether a required button has to repeat its state."""
        return self.required and self.max_silence_s > 0

    def __str__(self) -> str:
        """In the state message."""
        if not self.required:
            return "not required"
        if not self.max_silence_s:
            return "required, changes only: silence counts as released"
        signed = ", signed" if self.key is not None else ", not signed: who forges a button's words can keep it silent"
        return f"required, repeated within {self.max_silence_s * 1e3:g} ms{signed}"


@dataclass
class Button:
    """A publisher that repeats its state: a button, or who behaves like one."""

    pressed: bool
    heard_s: float  # monotonic; of a signed word the time of its challenge
    words: int = 1  # in a row, with no gap above the limit

    @property
    def counts(self) -> bool:
        return self.words >= REPEATS


@dataclass
class StopTopic:
    """Publishers are identified by `publisher_of`; signed words by the button's name."""

    label: str  # as the settings name it
    name: str  # fully qualified
    # Publisher whose newest word is True -> number of its press.
    down: dict[bytes, int] = field(init=False, default_factory=dict)
    # Publishers of which a message was received, and those of them that the transient local reader heard.
    spoke: set[bytes] = field(init=False, default_factory=set)
    spoke_kept: set[bytes] = field(init=False, default_factory=set)
    # Publisher -> when ROS first named it.
    discovered_s: dict[bytes, float] = field(init=False, default_factory=dict)
    # Publishers that repeat their state, also those that do not count yet.
    buttons: dict[bytes, Button] = field(init=False, default_factory=dict)
    bad_words: int = field(init=False, default=0)  # signed words that were refused

    def press(self, publisher: bytes, number: int) -> None:
        """Note a True."""
        self.down[publisher if len(self.down) < MAX_PUBLISHERS else UNKNOWN] = number

    def release(self, publisher: bytes) -> None:
        """Note a False: it releases the same publisher's True; if the publisher is not identified it releases
        nothing."""
        if publisher != UNKNOWN:
            self.down.pop(publisher, None)

    def repeat(self, who: bytes, pressed: bool, heard_s: float, limit_s: float) -> None:
        """Note a word of a button. An older one than the newest counts for nothing."""
        button = self.buttons.get(who)
        if button is None:
            if len(self.buttons) >= MAX_PUBLISHERS:
                self.buttons = self.heard()  # drops publishers that said one word or two
            self.buttons[who] = Button(pressed, heard_s)
            return
        since_s = heard_s - button.heard_s
        if since_s < 0:
            return
        button.pressed = pressed
        if since_s < TOGETHER_S:
            return
        button.words = button.words + 1 if since_s <= limit_s else 1
        button.heard_s = heard_s

    def silent(self, now_s: float, limit_s: float) -> list[bytes]:
        """Buttons that counted and have said nothing for longer than the limit. They count no more."""
        silent = [who for who, button in self.buttons.items() if button.counts and now_s - button.heard_s > limit_s]
        for who in silent:
            self.buttons[who].words = 0
        return silent

    def silent_at_s(self, limit_s: float) -> float | None:
        """When the first button will be silent if it says nothing more; None without a button."""
        return min((each.heard_s + limit_s for each in self.buttons.values() if each.counts), default=None)

    def forget(self, who: bytes) -> None:
        """A publisher that is gone. What it has pressed stays pressed."""
        self.buttons.pop(who, None)
        self.spoke.discard(who)
        self.spoke_kept.discard(who)

    def heard(self) -> dict[bytes, Button]:
        """The buttons that count."""
        return {who: button for who, button in self.buttons.items() if button.counts}


class StopWords:
    """Everything that was heard, on all topics. `lock` is held for a few instructions only."""

    def __init__(self, topics: Sequence[StopTopic], rules: StopRules) -> None:
        self.lock = threading.Lock()
        self.topics = list(topics)
        self.rules = rules
        self.presses = 0
        # Why only ~/release_stop releases; "" if nothing is latched. Not used if no button is required.
        self.latched = ""

    def note_press(self, topic: StopTopic, publisher: bytes, reason: str) -> None:
        with self.lock:
            self.presses += 1
            topic.press(publisher, self.presses)
            if self.rules.required:
                self.latched = reason

    def note_latch(self, reason: str) -> None:
        """A latch without a press: a required button cannot be relied on."""
        with self.lock:
            self.presses += 1
            self.latched = reason

    def note_release(self, topic: StopTopic, publisher: bytes) -> None:
        with self.lock:
            topic.release(publisher)

    def note_word(self, topic: StopTopic, publisher: bytes, is_kept: bool) -> None:
        """is_kept: heard by the transient local reader."""
        with self.lock:
            topic.spoke.add(publisher)
            if is_kept:
                topic.spoke_kept.add(publisher)

    def note_repetition(self, topic: StopTopic, who: bytes, pressed: bool, heard_s: float) -> None:
        """A word that shows that a button is alive."""
        with self.lock:
            topic.repeat(who, pressed, heard_s, self.rules.max_silence_s)

    def take_silent(self, topic: StopTopic, now_s: float) -> list[bytes]:
        """Buttons that have become silent; each is returned once."""
        with self.lock:
            return topic.silent(now_s, self.rules.max_silence_s)

    def is_heard(self, topic: StopTopic) -> bool:
        """Whether a button counts on this topic."""
        with self.lock:
            return bool(topic.heard())

    def silent_at_s(self) -> float | None:
        """When the first button will be silent if it says nothing more; None without a button."""
        with self.lock:
            times_s = [topic.silent_at_s(self.rules.max_silence_s) for topic in self.topics]
        return min((each for each in times_s if each is not None), default=None)
