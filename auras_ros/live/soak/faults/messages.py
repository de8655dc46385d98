"""Faults of what is said: garbage, noise, images and prompts that are none, beside the good ones of the loop.

The good ones must be used all the time: no command is missing for long, and chunks of new observations come.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from auras_ros.live.soak.garbage import HUGE_PROMPT, garbage_on_inputs
from auras_ros.live.soak.harness import PATIENCE_S, SoakHarness, Times
from auras_ros.live.soak.noise import NOISY, inputs, send
from auras_ros.live.soak.topics import ACTION, IMAGES, JOINTS, PROMPT, STATE_LISTENERS, STATES, Topic
from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS
from auras_ros.ros.image import image_message, to_time_msg
from auras_ros.ros.msg import Header, Image, JointState, String, message_type

GARBAGE_HZ = 20.0
NOISE_HZ, NOISE_S = 50.0, 1.0
IMAGES_HZ, IMAGES_S = 30.0, (1.5, 2.5)
UNREAD_S = (2.0, 4.0)
AN_HOUR_NS = 3600 * 10**9
STAMPS = [("future", AN_HOUR_NS), ("backwards", -AN_HOUR_NS)]
QUIET_S = 1.1  # a node says the same thing at most once a second
SIDE = 96
FEW, MANY = np.zeros(7, np.uint8), np.zeros((SIDE // 2) * SIDE * 3, np.uint8)
CORRUPT: list[tuple[str, dict[str, Any]]] = [
    ("bad_data", {"data": FEW}),
    ("bad_data", {"data": FEW[:0]}),
    ("too_large", {"height": 2**31, "width": 2**31, "step": 2**32 - 1}),
]
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("encoding: bad_encoding", {"encoding": "16UC1"}),
    ("step: bad_step", {"step": 10}),
    ("height x width: bad_size", {"height": SIDE // 2, "data": MANY}),
    ("width: bad_size", {"width": 0}),
]
PROMPTS = ("\x01", "\x1b]0;x\x07", "y" * 5000)
NAMED_TWICE = JointState(name=["gripper"] * 2, position=[0.5] * 2)


def black_image(ahead_ns: int = 0) -> Image:
    """A good image, stamped so long after now."""
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    return image_message(pixels, stamp_ns=time.time_ns() + ahead_ns, frame_id="top", encoding="rgb8")


def image_corrupt(harness: SoakHarness) -> Times:
    """Cut off, empty, or of a size that nobody has memory for."""
    return _image(harness, *harness.draw("image_corrupt", CORRUPT))


def image_wrong(harness: SoakHarness) -> Times:
    """Another encoding, step or size than it says or than the policy was trained on: the field is named."""
    return _image(harness, *harness.draw("image_wrong", WRONG))


def stamp_ahead(harness: SoakHarness) -> Times:
    """An image of a camera that is an hour ahead: it must not blind the agent to those after it."""
    return _image(harness, "future", {}, AN_HOUR_NS)


def _image(harness: SoakHarness, words: str, changes: dict[str, Any], ahead_ns: int = 0) -> Times:
    def make() -> Image:
        message = black_image(ahead_ns)
        for field, value in changes.items():
            setattr(message, field, value)
        return message

    return _observation(harness, IMAGES, make, words)


def joint_states_stamped(harness: SoakHarness) -> Times:
    """The robot's own place, stamped an hour ahead or an hour ago; so it is where a wall clock was set back between the
    two. It must not blind the agent to those after it."""
    words, offset_ns = harness.draw("joint_states_stamped", STAMPS)

    def make() -> JointState:
        header = Header(stamp=to_time_msg(time.time_ns() + offset_ns))
        place = harness.judge.sent[-1].values.tolist()
        return JointState(header=header, name=list(JOINTS), position=place)

    return _observation(harness, STATES, make, words)


def _observation(harness: SoakHarness, topic: Topic, make: Callable[[], Any], words: str) -> Times:
    """Bad ones for a while; the last of the words is the agent's name for the fault."""
    counted = "agent: observation", f"fault {words.split()[-1]}"
    return _beside(harness, topic, make, words, counted, harness.rng.uniform(*IMAGES_S))


def joint_states_of_others(harness: SoakHarness) -> Times:
    """Another driver's joints, and a name that stands there twice: measured to the actuator's word for that."""
    messages = itertools.cycle([JointState(name=["gripper"], position=[0.5]), NAMED_TWICE])
    with harness.publisher(STATES, STATE_LISTENERS) as publisher:
        unreadable = harness.witness.state["unreadable"]
        begin_ns, end_ns = harness.repeat(lambda: publisher.publish(next(messages)), IMAGES_HZ, IMAGES_S[0])
    more = "not counted", f"unreadable is still {unreadable}"
    harness.expect(lambda: harness.witness.state["unreadable"] > unreadable, *more)
    harness.used(begin_ns, end_ns, "another driver's joint states")
    return begin_ns, harness.witness.logs.line_ns("actuator", "is named twice", begin_ns)


def log_unread(harness: SoakHarness) -> Times:
    """Nobody reads what the nodes say, and the pipe is full: nothing may wait for it."""
    return _without_log(harness, harness.unread_log, "a log that nobody reads")


def log_closed(harness: SoakHarness) -> Times:
    """Whoever read what the nodes say is gone: writing is an error."""
    return _without_log(harness, harness.closed_log, "a log whose pipe is closed")


def _without_log(harness: SoakHarness, logs: Callable[[], AbstractContextManager[None]], what: str) -> Times:
    """Agent and actuator are given something to say all the time; and the emergency stop is pressed meanwhile."""
    with harness.publisher(PROMPT) as prompt, harness.publisher(STATES, STATE_LISTENERS) as states:
        begin_ns = harness.now_ns()
        with logs():
            prompt.publish(String(data=PROMPTS[0]))
            harness.repeat(lambda: states.publish(NAMED_TWICE), IMAGES_HZ, harness.rng.uniform(*UNREAD_S))
            harness.used(begin_ns, harness.now_ns(), what)
            pressed_ns = harness.now_ns()
            harness.witness.press(True)
            stopped_ns = harness.first_of("stopped", pressed_ns)
            harness.witness.press(False)
    return pressed_ns, stopped_ns


def prompt_huge(harness: SoakHarness) -> Times:
    return _prompt(harness, HUGE_PROMPT)


def prompt_garbage(harness: SoakHarness) -> Times:
    return _prompt(harness, harness.draw("prompt_garbage", PROMPTS))


def _prompt(harness: SoakHarness, text: str) -> Times:
    before = harness.witness.chunks[-1].prompt
    counted = "agent: prompt", "refused"
    times = _beside(harness, PROMPT, lambda: String(data=text), "refused: prompt: ", counted, seconds=0.0)
    if harness.witness.chunks[-1].prompt != before:
        harness.judge.violate("prompt taken", f"{len(text)} characters that are no prompt")
    return times


def _beside(
    harness: SoakHarness, topic: Topic, make: Callable[[], Any], words: str, counted: tuple[str, str], seconds: float
) -> Times:
    """Bad messages beside the good ones, for so long; 0 s: one. Measured from just before the first one to the words
    that the agent finds for it. counted: where its diagnostics count it."""
    logs = harness.witness.logs
    with harness.publisher(topic) as publisher:
        harness.pause(QUIET_S)
        before = logs.count(*counted)
        begin_ns, end_ns = harness.repeat(lambda: publisher.publish(make()), IMAGES_HZ, seconds)
        harness.until(lambda: logs.line_ns("agent", words, begin_ns))
    beside = [each for each in harness.witness.chunks if each.origin_mono_ns > begin_ns and each.published_ns < end_ns]
    if seconds and not beside:
        harness.judge.violate("good ones not used", f"no chunk of a good image beside '{words}'")
    harness.expect(lambda: logs.count(*counted) > before, "not counted", f"{counted[1]} is still {before}")
    harness.used(begin_ns, end_ns, f"'{words}'")
    return begin_ns, logs.line_ns("agent", words, begin_ns)


def noise(harness: SoakHarness) -> Times:
    """On one topic, each in its turn; measured until every node that hears it has said so."""
    found = {each.topic: each for each in inputs(harness.witness)}
    at, logs = found[harness.draw("noise", sorted(found))], harness.witness.logs
    if at.topic.endswith(f"/{ACTION}"):  # one who publishes there disarms an actuator that was armed a moment ago
        harness.pause(DISCOVERY_NS / 1e9)
    with harness.publisher((message_type(at.ros_type), at.topic, NOISY), len(at.listeners)) as publisher:
        begin_ns = harness.now_ns()

        def named() -> list[int | None]:
            return [logs.line_ns(node, f"bytes on {at.topic}: ", begin_ns) for node in at.listeners]

        def due() -> bool:  # depth 1 keeps the newest alone: again until it is heard
            passed_s = (harness.now_ns() - begin_ns) / 1e9
            return passed_s < NOISE_S or (None in named() and passed_s < PATIENCE_S)

        while due():
            send(publisher, harness.rng)
            harness.pause(1.0 / NOISE_HZ)
        end_ns = harness.now_ns()
    harness.expect(lambda: not harness.witness.state["conflict"], "conflict stays", "the noise is gone")
    harness.used(begin_ns, end_ns, f"noise on {at.topic}")
    times = [each for each in named() if each is not None]
    return begin_ns, max(times) if len(times) == len(at.listeners) else None


def garbage(harness: SoakHarness) -> Times:
    """On every input of agent and actuator, while they work; measured to the next command of a chunk."""
    with garbage_on_inputs(harness) as say:
        for _ in range(round(harness.rng.uniform(1.0, 3.0) * GARBAGE_HZ)):
            say()
            harness.pause(1.0 / GARBAGE_HZ)
    end_ns = harness.now_ns()
    harness.drive()
    return end_ns, harness.first_of("armed", end_ns)
