"""A required button of the emergency stop, as processes: it repeats its state, its silence and its end stop the robot,
and nothing on a topic releases."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros.nodes.common.stop_signature import signed_text, write_new_key
from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import Bool, String
from tests.nodes.middleware import IDENTIFIES_PUBLISHERS
from tests.nodes.stand_ins import FakeAgent, Loop, Robot, ramp
from tests.nodes.wire import BEST_EFFORT, LATCHED, Child, Children, Watch

VOLATILE = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
# A busy machine keeps a process from running for longer than the default of 500 ms.
PATIENT_MS = 2000.0


class Button:
    """`auras button --input lines` as a process, whose standard input is a pipe in the file system."""

    def __init__(self, children: Children, folder: Path, **parameters: Any) -> None:
        path = folder / f"button{len(children.started)}"
        os.mkfifo(path)
        words = [word for key, value in parameters.items() for word in ("-p", f"{key}:={json.dumps(value)}")]
        command = [sys.executable, "-m", "auras_ros.nodes.button.node", "--ros-args", *words]
        self.child = children("/bin/sh", "-c", f"exec {shlex.join(command)} < {shlex.quote(str(path))}")
        self._pipe = path.open("w")

    def say(self, line: str) -> None:
        self._pipe.write(f"{line}\n")
        self._pipe.flush()

    def end_of_input(self) -> None:
        self._pipe.close()


@pytest.fixture
def button(children: Children, tmp_path: Path) -> Callable[..., Button]:
    """Start a button that is released."""
    made: list[Button] = []  # a pipe that is closed would be a press

    def start(**parameters: Any) -> Button:
        made.append(Button(children, tmp_path, **parameters))
        made[-1].say("released")
        return made[-1]

    return start


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = str(tmp_path / "stop.key")
    write_new_key(path)
    return path


def required(actuator: Callable[..., Child], **parameters: Any) -> Child:
    given = {"require_emergency_stop": True, "emergency_stop_max_silence_ms": PATIENT_MS}
    return actuator(**(given | parameters))


def drive(fake: FakeAgent, watch: Watch) -> None:
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()


def stopped(watch: Watch, why: str) -> str:
    """Wait until it is stopped for that reason, which is returned."""
    state = watch.state_where(lambda said: said["state"] == "stopped" and why in said["reason"], f"stopped: {why}")
    return str(state["reason"])


def drives_again(watch: Watch) -> None:
    """What a person does after a stop, once the button is released."""
    assert watch.call("actuator/disarm")[0]
    assert not watch.call("actuator/arm")[0], "the stop was not released"
    watch.until(lambda: watch.call("actuator/release_stop")[0], "released")
    watch.call("actuator/disarm")  # a last press may have come after the first one, and stopped it again
    watch.arm()
    watch.armed()


def test_a_press_stops_and_only_a_person_releases(
    actuator: Callable[..., Child], button: Callable[..., Button], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    pressed = button()
    required(actuator)
    drive(fake, watch)
    pressed.say("pressed")
    stopped(watch, "emergency stop pressed")
    assert watch.call("actuator/disarm")[0]
    released, why = watch.call("actuator/release_stop")
    assert not released
    assert "/button" in why or not IDENTIFIES_PUBLISHERS
    pressed.say("released")
    watch.until(
        lambda: watch.call("actuator/arm")[1].startswith("stopped and not released"), "the release is heard"
    ) if (IDENTIFIES_PUBLISHERS) else None
    drives_again(watch)


def test_a_stopped_button_process_stops_the_robot_by_its_silence(
    actuator: Callable[..., Child], button: Callable[..., Button], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    silent = button()
    required(actuator)
    drive(fake, watch)
    silent.child.send(signal.SIGSTOP)
    why = stopped(watch, "was silent for more than 2000 ms")
    assert "on /emergency_stop" in why
    assert watch.call("actuator/disarm")[0]
    assert "no emergency stop: " in watch.call("actuator/arm")[1]
    released, refusal = watch.call("actuator/release_stop")
    assert not released
    assert refusal.startswith("not released: ")
    silent.child.send(signal.SIGCONT)
    drives_again(watch)


def test_a_button_that_ends_presses_first(
    actuator: Callable[..., Child], button: Callable[..., Button], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    ended = button()
    required(actuator, emergency_stop_max_silence_ms=10000.0)
    drive(fake, watch)
    ended.child.send(signal.SIGTERM)
    stopped(watch, "emergency stop pressed")
    assert ended.child.wait() == 0


def test_the_end_of_a_buttons_input_is_a_press(
    actuator: Callable[..., Child], button: Callable[..., Button], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """As the program that reads the pin ends, or the terminal is closed."""
    ended = button()
    required(actuator)
    drive(fake, watch)
    ended.end_of_input()
    stopped(watch, "emergency stop pressed")
    watch.call("actuator/disarm")
    assert not watch.call("actuator/release_stop")[0]
    assert ended.child.process.poll() is None, "it goes on saying that it is pressed"


def test_a_publisher_that_vanishes_stops_though_silence_is_not_over(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """One that says no last word: its publisher is destroyed."""
    publisher = watch.node.create_publisher(Bool, "emergency_stop", VOLATILE)
    repeating = Loop(0.05, lambda: publisher.publish(Bool(data=False)))
    required(actuator, emergency_stop_max_silence_ms=10000.0)
    drive(fake, watch)
    repeating.close()
    watch.node.destroy_publisher(publisher)
    stopped(watch, "/watch on /emergency_stop is gone" if IDENTIFIES_PUBLISHERS else "on /emergency_stop is gone")


def test_one_word_is_no_button(actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot) -> None:
    """Guards against a history that looks like life: the last word of a button that died since."""
    publisher = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    publisher.publish(Bool(data=False))
    required(actuator)
    fake.live()
    watch.state_where(lambda state: state["emergency_stop"] is False, "the word is heard")
    armed, why = watch.call("actuator/arm")
    assert not armed
    assert why.startswith("no emergency stop: /watch does not repeat /emergency_stop within 2000 ms")


def test_a_word_of_another_publisher_comes_and_goes(
    actuator: Callable[..., Child], button: Callable[..., Button], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """`ros2 topic pub --once` beside a button. rclpy 7.1 does not say whose a word is: there a second one stops."""
    button()
    required(actuator)
    drive(fake, watch)
    other = watch.node.create_publisher(Bool, "emergency_stop", VOLATILE)
    watch.until(lambda: other.get_subscription_count() > 0, "somebody who hears it")
    other.publish(Bool(data=False))
    if not IDENTIFIES_PUBLISHERS:
        stopped(watch, "this rclpy does not tell whose words are heard")
        return
    tick = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > tick + 50, "time in which it was heard")
    watch.node.destroy_publisher(other)
    tick = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > tick + 50, "time in which it was missed")
    watch.drives_on()


def test_changes_only_is_said_and_trusts_silence(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """emergency_stop_max_silence_ms: 0 is for a button that cannot repeat."""
    publisher = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    publisher.publish(Bool(data=False))
    child = required(actuator, emergency_stop_max_silence_ms=0.0)
    drive(fake, watch)
    said = "required, changes only: silence counts as released"
    assert watch.states[-1]["emergency_stop_rule"] == said
    assert f"emergency stop: {said}" in child.output
    watch.node.destroy_publisher(publisher)
    stopped(watch, "on /emergency_stop is gone")


def test_each_required_button_has_its_topic(
    actuator: Callable[..., Child], button: Callable[..., Button], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    button()
    required(actuator, emergency_stops=["emergency_stop", "pendant/stop"])
    fake.live()
    fake.drive(ramp())
    missing = "no emergency stop: nobody publishes /pendant/stop, and require_emergency_stop is set"
    watch.until(lambda: watch.call("actuator/arm") == (False, missing), "the refusal")
    pendant = button(topic="pendant/stop")
    watch.arm()
    watch.armed()
    pendant.child.send(signal.SIGSTOP)
    stopped(watch, "on /pendant/stop was silent")
    pendant.child.send(signal.SIGCONT)
    drives_again(watch)


# -- signed words -----------------------------------------------------------------------------------------


def test_with_a_key_only_signed_words_count(
    actuator: Callable[..., Child],
    button: Callable[..., Button],
    fake: FakeAgent,
    watch: Watch,
    robot: Robot,
    key_file: str,
) -> None:
    """Unsigned False words, however many, are neither life nor release; an unsigned True stops."""
    forger = watch.node.create_publisher(Bool, "emergency_stop", VOLATILE)
    forging = Loop(0.01, lambda: forger.publish(Bool(data=False)))
    required(actuator, emergency_stop_key_file=key_file)
    fake.live()
    fake.drive(ramp())
    watch.until(lambda: watch.call("actuator/arm")[1].startswith("no emergency stop: "), "the refusal")
    signing = button(emergency_stop_key_file=key_file)
    watch.arm()
    watch.armed()
    assert watch.states[-1]["emergency_stop_rule"].endswith(", signed")
    signing.say("pressed")
    stopped(watch, "emergency stop pressed")
    watch.call("actuator/disarm")
    tick = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > tick + 50, "time in which the forger was heard")
    assert watch.call("actuator/release_stop") == (False, "still pressed by /button: release it there")
    signing.say("released")
    drives_again(watch)
    signing.child.send(signal.SIGSTOP)
    stopped(watch, "/button on /emergency_stop was silent")
    signing.child.send(signal.SIGCONT)
    drives_again(watch)
    forging.close()
    forger.publish(Bool(data=True))
    stopped(watch, "emergency stop pressed")
    drives_again(watch)


def test_words_with_another_key_or_an_old_challenge_are_refused_and_counted(
    actuator: Callable[..., Child], watch: Watch, key_file: str, tmp_path: Path, fake: FakeAgent, robot: Robot
) -> None:
    child = required(actuator, emergency_stop_key_file=key_file)
    fake.live()
    words = watch.node.create_publisher(String, "emergency_stop/signed", VOLATILE)
    watch.node.create_publisher(Bool, "emergency_stop", VOLATILE)
    challenges: list[str] = []
    watch.node.create_subscription(
        String, "actuator/stop_challenge", lambda message: challenges.append(json.loads(message.data)["challenge"]),
        BEST_EFFORT,
    )  # fmt: skip
    watch.until(lambda: len(challenges) > 3 and words.get_subscription_count() > 0, "challenges")
    other_key, key = b"k" * 32, Path(key_file).read_bytes()
    bad = [
        signed_text(other_key, "/emergency_stop", "/button", False, challenges[-1]),
        signed_text(key, "/pendant/stop", "/button", False, challenges[-1]),
        signed_text(key, "/emergency_stop", "/button", False, "0" * 32),
        "{", "[]", '{"button": "\\ud800"}', "x" * 5000,
    ]  # fmt: skip
    for text in bad:
        words.publish(String(data=text))
    watch.state_where(lambda state: state["unreadable"] >= len(bad), "every bad word is counted")
    armed, why = watch.call("actuator/arm")
    assert not armed
    assert "signs /emergency_stop/signed with our key (7 words were refused" in why
    old = challenges[-1]
    time.sleep(PATIENT_MS / 1e3 + 0.5)
    words.publish(String(data=signed_text(key, "/emergency_stop", "/button", False, old)))
    watch.state_where(lambda state: state["unreadable"] >= len(bad) + 1, "a recorded word is refused")
    assert "refused" in child.output


def test_a_key_file_that_others_can_read_is_refused(actuator: Callable[..., Child], key_file: str) -> None:
    Path(key_file).chmod(0o644)
    child = required(actuator, emergency_stop_key_file=key_file)
    assert child.wait() == 2
    said = f"error: emergency_stop_key_file: {key_file}: others can read it (mode 0644): chmod 600 {key_file}\n"
    assert child.output == said
