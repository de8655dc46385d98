"""The button: publishes its state at a fixed rate, at once when it changes, and signed for each challenge if it has a
key. It ends as pressed.

The actuator's rules for buttons: `auras_ros.nodes.actuator.emergency_stop`.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

from auras_ros.nodes.button.inputs import ButtonInput, ButtonState
from auras_ros.nodes.button.settings import ButtonSettings
from auras_ros.nodes.common.config import check_given
from auras_ros.nodes.common.qos import BEST_EFFORT
from auras_ros.nodes.common.stop_signature import (
    CHALLENGE_TOPIC,
    MAX_CHARS,
    SIGNED,
    BadWordError,
    KeyFileError,
    read_challenge,
    read_key,
    signed_text,
)
from auras_ros.parameters import ParameterError
from auras_ros.ros import Clock, ClockType, DurabilityPolicy, Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.bounded import RefusedMessages, bounded, read_message, text_limits
from auras_ros.ros.msg import Bool, String
from auras_ros.ros.process import run_node
from auras_ros.ros.settings import read_parameters

# Words that a reader missed are sent again while they are among the newest ten.
WORDS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
SIGNED_WORDS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
LAST_WORD_S = 0.2  # for the last word to arrive
# A challenge is due ten times a second; without any for so long they are read with new readers.
DEAF_S = 1.0
MAX_RENEWAL_PAUSE_S = 16.0


class ButtonNode(Node):
    """Publishes `topic`, and with a key `topic/signed`."""

    def __init__(self, **node_options: Any) -> None:
        super().__init__("button", **node_options)
        settings = self._settings = read_parameters(self, ButtonSettings)
        key_file = settings.emergency_stop_key_file
        self._key = read_key(key_file) if key_file else None
        self._input = ButtonInput(settings)
        self._state: ButtonState | None = None  # not known yet: nothing is said, and nobody arms
        self._publishing = threading.Lock()
        self._words = self.create_publisher(Bool, settings.topic, WORDS)
        self._refused = RefusedMessages(self)
        self._challenges: dict[str, str] = {}  # actuator -> its newest challenge
        self._readers: dict[str, Any] = {}
        if self._key is not None:
            self._signed_topic = self.resolve_topic_name(settings.topic)
            self._signed = self.create_publisher(String, f"{settings.topic}/{SIGNED}", SIGNED_WORDS)
            now_s = time.monotonic()
            self._challenged_s = dict.fromkeys(settings.actuators, now_s)
            self._renewed = dict.fromkeys(settings.actuators, (now_s, DEAF_S))  # when, and the pause until the next
            for actuator in settings.actuators:
                self._readers[actuator] = self._subscribe(actuator)
        self.create_timer(1.0 / settings.rate_hz, self._repeat, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._thread = threading.Thread(target=self._read, name="button", daemon=True)

    def start(self) -> None:
        signed = "signed" if self._key is not None else "not signed: who forges our words can keep the actuator deaf"
        topic = self.resolve_topic_name(self._settings.topic)
        self.get_logger().info(f"button on {topic}, {signed}")
        self._thread.start()

    def working(self) -> bool:
        """Always: a button whose input has ended goes on saying that it is pressed."""
        return True

    def halt(self) -> None:
        """Say pressed as the last word."""
        self._input.close()
        self._set(ButtonState(True, "the button ends"))
        time.sleep(LAST_WORD_S)

    # -- the input's thread -------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for state in self._input.states:
                self._set(state)
            why = "its input has ended"
        except OSError as error:
            why = f"its input has failed: {error}"
        self._set(ButtonState(True, f"{why}; start the button again"))

    def _set(self, state: ButtonState) -> None:
        """Take a state and publish it at once; the log comes last."""
        with self._publishing:
            changes = self._state is None or self._state.pressed != state.pressed
            self._state = state
            self._publish(state)
        if changes or state.pressed:
            self.get_logger().info(f"{'pressed' if state.pressed else 'released'}: {state.why}")

    # -- publishing ---------------------------------------------------------------------------------------

    def _repeat(self) -> None:
        """Called by the timer."""
        with self._publishing:
            if self._state is not None:
                self._words.publish(Bool(data=self._state.pressed))
        for actuator in self._readers:
            self._look_for_deafness(actuator)

    def _publish(self, state: ButtonState) -> None:
        self._words.publish(Bool(data=state.pressed))
        for challenge in list(self._challenges.values()):
            self._answer(state, challenge)

    def _answer(self, state: ButtonState, challenge: str) -> None:
        assert self._key is not None
        name = self.get_fully_qualified_name()
        self._signed.publish(String(data=signed_text(self._key, self._signed_topic, name, state.pressed, challenge)))

    # -- challenges ---------------------------------------------------------------------------------------

    def _subscribe(self, actuator: str) -> Any:
        topic = f"{actuator}/{CHALLENGE_TOPIC}"
        refuse = lambda error: self._refused.add(topic, str(error))  # noqa: E731
        take = partial(self._on_challenge, actuator)
        callback = bounded(topic, partial(read_message, kind=String), take, text_limits(MAX_CHARS), refuse)
        return self.create_subscription(String, topic, callback, BEST_EFFORT, raw=True)

    def _on_challenge(self, actuator: str, message: String) -> None:
        """Answer at once."""
        try:
            challenge = read_challenge(message.data)
        except BadWordError as error:
            self._refused.add(actuator, f"{actuator}/{CHALLENGE_TOPIC}: {error}")
            return
        now_s = time.monotonic()
        self._challenged_s[actuator] = now_s
        self._renewed[actuator] = (now_s, DEAF_S)
        with self._publishing:
            self._challenges[actuator] = challenge
            if self._state is not None:
                self._answer(self._state, challenge)

    def _look_for_deafness(self, actuator: str) -> None:
        """Read an actuator's challenges with a new reader if none came: one forged packet can make a reader deaf."""
        now_s = time.monotonic()
        began_s, pause_s = self._renewed[actuator]
        if now_s - began_s <= pause_s:
            return
        self._renewed[actuator] = (now_s, min(2 * pause_s, MAX_RENEWAL_PAUSE_S))
        self.destroy_subscription(self._readers[actuator])
        self._readers[actuator] = self._subscribe(actuator)


def main(argv: list[str] | None = None) -> int:
    """Entry point of the executable `button`."""
    bad_settings = (ParameterError, KeyFileError, OSError)
    check = partial(check_given, "button")
    return run_node(lambda _: ButtonNode(), bad_settings, check_arguments=check, argv=argv, shared_memory=False)


if __name__ == "__main__":
    sys.exit(main())
