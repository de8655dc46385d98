"""Faults of what is said: garbage, noise, images and prompts that are none, beside the good ones of the loop.

The good ones must be used all the time: no command is missing for long, and chunks of new observations come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from auras_ros.live.soak.faults.kinds import PATIENCE_S, Times
from auras_ros.live.soak.garbage import HUGE_PROMPT, Garbage
from auras_ros.live.soak.noise import GarbledPublisher, inputs
from auras_ros.live.soak.other import JOINTS
from auras_ros.live.soak.qos import CAMERA, LATCHED
from auras_ros.live.soak.scene import SoakHarness
from auras_ros.ros import qos_profile_sensor_data
from auras_ros.ros.image import image_message, to_time_msg
from auras_ros.ros.msg import Header, Image, JointState, String

GARBAGE_HZ = 20.0
NOISE_HZ, NOISE_S = 50.0, 1.0
IMAGES_HZ, IMAGES_S = 30.0, (1.5, 2.5)
UNREAD_S = (2.0, 4.0)
AN_HOUR_NS = 3600 * 10**9
STAMPS = [("future", AN_HOUR_NS), ("backwards", -AN_HOUR_NS)]
STATE_LISTENERS = 2  # agent and actuator
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


@dataclass(frozen=True)
class Bad:
    """What is published beside the good, how often a second and for how long; 0 s: once. `says`: the words that the
    agent finds for it; `counted`: where its diagnostics count it."""

    publisher: Any
    make: Callable[[], Any]
    hz: float
    seconds: float
    says: str
    counted: tuple[str, str]


def image_corrupt(harness: SoakHarness) -> Times:
    """Cut off, empty, or of a size that nobody has memory for."""
    return _image(harness, harness.draw("image_corrupt", CORRUPT))


def image_wrong(harness: SoakHarness) -> Times:
    """Another encoding, step or size than it says or than the policy was trained on: the field is named."""
    return _image(harness, harness.draw("image_wrong", WRONG))


def _image(harness: SoakHarness, kind: tuple[str, dict[str, Any]]) -> Times:
    words, changes = kind

    def make() -> Image:
        pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
        message = image_message(pixels, stamp_ns=time.time_ns(), frame_id="top", encoding="rgb8")
        for field, value in changes.items():
            setattr(message, field, value)
        return message

    publisher = harness.witness.create_publisher(Image, "camera/top/image_raw", CAMERA)
    counted = "agent: observation", f"fault {words.split()[-1]}"
    return _beside(harness, Bad(publisher, make, IMAGES_HZ, harness.rng.uniform(*IMAGES_S), words, counted))


def stamp_ahead(harness: SoakHarness) -> Times:
    """An image of a camera that is an hour ahead: it must not blind the agent to those after it."""

    def make() -> Image:
        pixels, stamp_ns = np.zeros((SIDE, SIDE, 3), np.uint8), time.time_ns() + AN_HOUR_NS
        return image_message(pixels, stamp_ns=stamp_ns, frame_id="top", encoding="rgb8")

    publisher = harness.witness.create_publisher(Image, "camera/top/image_raw", CAMERA)
    seconds = harness.rng.uniform(*IMAGES_S)
    return _beside(harness, Bad(publisher, make, IMAGES_HZ, seconds, "future", ("agent: observation", "fault future")))


def joint_states_stamped(harness: SoakHarness) -> Times:
    """The robot's own place, stamped an hour ahead or an hour ago; so it is where a wall clock was set back between the
    two. It must not blind the agent to those after it."""
    words, offset_ns = harness.draw("joint_states_stamped", STAMPS)

    def make() -> JointState:
        header = Header(stamp=to_time_msg(time.time_ns() + offset_ns))
        place = harness.judge.sent[-1].values.tolist()
        return JointState(header=header, name=list(JOINTS), position=place)

    publisher = harness.witness.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    seconds, counted = harness.rng.uniform(*IMAGES_S), ("agent: observation", f"fault {words}")
    return _beside(harness, Bad(publisher, make, IMAGES_HZ, seconds, words, counted))


def joint_states_of_others(harness: SoakHarness) -> Times:
    """Another driver's joints, and a name that stands there twice: measured to the actuator's word for that."""
    publisher = harness.witness.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    try:
        harness.until(lambda: publisher.get_subscription_count() >= STATE_LISTENERS, PATIENCE_S)
        begin_ns, unreadable = harness.now_ns(), harness.witness.state["unreadable"]
        while harness.now_ns() - begin_ns < IMAGES_S[0] * 1e9:
            for names in (["gripper"], ["gripper", "gripper"]):
                publisher.publish(JointState(name=names, position=[0.5] * len(names)))
                harness.pause(1.0 / IMAGES_HZ)
        end_ns = harness.now_ns()
    finally:
        harness.witness.destroy_publisher(publisher)
    if not harness.until(lambda: harness.witness.state["unreadable"] > unreadable, PATIENCE_S):
        harness.judge.violate("not counted", f"unreadable is still {unreadable}")
    used(harness, begin_ns, end_ns, "another driver's joint states")
    return begin_ns, harness.witness.said.line_ns("actuator", "is named twice", begin_ns)


def log_unread(harness: SoakHarness) -> Times:
    """Nobody reads what the nodes say, and the pipe is full: nothing may wait for it."""
    return _without_log(harness, harness.unread_logs, "a log that nobody reads")


def log_closed(harness: SoakHarness) -> Times:
    """Whoever read what the nodes say is gone: writing is an error."""
    return _without_log(harness, harness.closed_logs, "a log whose pipe is closed")


def _without_log(harness: SoakHarness, logs: Callable[[], AbstractContextManager[None]], what: str) -> Times:
    """Agent and actuator are given something to say all the time; and the emergency stop is pressed meanwhile."""
    prompt = harness.witness.create_publisher(String, "prompt", LATCHED)
    states = harness.witness.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    begin_ns = harness.now_ns()
    try:
        with logs():
            harness.until(lambda: states.get_subscription_count() >= STATE_LISTENERS, PATIENCE_S)
            prompt.publish(String(data=PROMPTS[0]))
            end_s = time.monotonic() + harness.rng.uniform(*UNREAD_S)
            while time.monotonic() < end_s:
                states.publish(JointState(name=["gripper", "gripper"], position=[0.5, 0.5]))
                harness.pause(1.0 / IMAGES_HZ)
            used(harness, begin_ns, harness.now_ns(), what)
            pressed_ns = harness.now_ns()
            harness.witness.press(True)
            stopped_ns = harness.first_of("stopped", pressed_ns, PATIENCE_S)
            harness.witness.press(False)
    finally:
        harness.witness.destroy_publisher(prompt)
        harness.witness.destroy_publisher(states)
    return pressed_ns, stopped_ns


def prompt_huge(harness: SoakHarness) -> Times:
    return _prompt(harness, HUGE_PROMPT)


def prompt_garbage(harness: SoakHarness) -> Times:
    return _prompt(harness, harness.draw("prompt_garbage", PROMPTS))


def _prompt(harness: SoakHarness, text: str) -> Times:
    before = harness.witness.chunks[-1].prompt
    publisher = harness.witness.create_publisher(String, "prompt", LATCHED)
    counted = "agent: prompt", "refused"
    times = _beside(harness, Bad(publisher, lambda: String(data=text), 1.0, 0.0, "refused: prompt: ", counted))
    if harness.witness.chunks[-1].prompt != before:
        harness.judge.violate("prompt taken", f"{len(text)} characters that are no prompt")
    return times


def _beside(harness: SoakHarness, bad: Bad) -> Times:
    """Measured from just before the first bad message to the agent's word for it."""
    said = harness.witness.said
    try:
        harness.until(lambda: bad.publisher.get_subscription_count() > 0, PATIENCE_S)
        harness.pause(QUIET_S)
        before, begin_ns = said.count(*bad.counted), harness.now_ns()
        bad.publisher.publish(bad.make())
        while harness.now_ns() - begin_ns < bad.seconds * 1e9:
            harness.pause(1.0 / bad.hz)
            bad.publisher.publish(bad.make())
        end_ns = harness.now_ns()
        harness.until(lambda: said.line_ns("agent", bad.says, begin_ns), PATIENCE_S)
    finally:
        harness.witness.destroy_publisher(bad.publisher)
    beside = [each for each in harness.witness.chunks if each.origin_ns > begin_ns and each.published_ns < end_ns]
    if bad.seconds and not beside:
        harness.judge.violate("good ones not used", f"no chunk of a good image beside '{bad.says}'")
    if not harness.until(lambda: said.count(*bad.counted) > before, PATIENCE_S):
        harness.judge.violate("not counted", f"{bad.counted[1]} is still {before}")
    used(harness, begin_ns, end_ns, f"'{bad.says}'")
    return begin_ns, said.line_ns("agent", bad.says, begin_ns)


def used(harness: SoakHarness, begin_ns: int, end_ns: int, what: str) -> None:
    """Good messages must be used after the bad ones, and the robot must have been driven meanwhile."""
    if not harness.until(lambda: any(each.origin_ns > end_ns for each in harness.witness.chunks), PATIENCE_S):
        harness.judge.violate("good ones not used", f"no chunk after {what}")
    harness.undisturbed(begin_ns, what)


def noise(harness: SoakHarness) -> Times:
    """On one topic, each in its turn; measured until every node that hears it has said so."""
    found = {each.topic: each for each in inputs(harness.witness)}
    at = found[harness.draw("noise", sorted(found))]
    made, said = GarbledPublisher(harness.witness, at, harness.rng), harness.witness.said
    try:
        harness.until(made.matched, PATIENCE_S)
        begin_ns = harness.now_ns()

        def named() -> list[int | None]:
            return [said.line_ns(node, f"bytes on {at.topic}: ", begin_ns) for node in at.listeners]

        def due() -> bool:  # depth 1 keeps the newest alone: again until it is heard
            passed_s = (harness.now_ns() - begin_ns) / 1e9
            return passed_s < NOISE_S or (None in named() and passed_s < PATIENCE_S)

        while due():
            made.say()
            harness.pause(1.0 / NOISE_HZ)
        end_ns = harness.now_ns()
    finally:
        made.close()
    if not harness.until(lambda: not harness.witness.state["conflict"], PATIENCE_S):
        harness.judge.violate("conflict stays", "the noise is gone")
    used(harness, begin_ns, end_ns, f"noise on {at.topic}")
    times = named()
    return begin_ns, None if None in times else max(each for each in times if each is not None)


def garbage(harness: SoakHarness) -> Times:
    """On every input of agent and actuator, while they work; measured to the next command of a chunk."""
    made = Garbage(harness.witness, harness.rng, JOINTS)
    try:
        for _ in range(round(harness.rng.uniform(1.0, 3.0) * GARBAGE_HZ)):
            made.say()
            harness.pause(1.0 / GARBAGE_HZ)
    finally:
        made.close()
    end_ns = harness.now_ns()
    harness.drive()
    return end_ns, harness.first_of("armed", end_ns, PATIENCE_S)
