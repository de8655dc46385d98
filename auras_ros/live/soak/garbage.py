"""Messages that no node means: of the right type, and of any content. Everything comes from the seed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from auras_ros.live.soak.harness import SoakHarness
from auras_ros.live.soak.topics import CHUNKS, HEARTBEAT, IMAGES, JOINTS, PROMPT, STATES, Topic
from auras_ros.nodes.common.messages import host_id
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.ros.msg import Float64MultiArray, Image, JointState, MultiArrayDimension, MultiArrayLayout, String

NUMBERS = (0.0, -1.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
TEXTS = (
    "",
    "null",
    "[]",
    "{}",
    '{"session": 1}',
    '{"mono_ns": NaN}',
    "9" * 5000,
    "[" * 5000,
    "\x07\x1b[31m",
    "{" * 99,
    '{"session": "s", "lifecycle": "\\ud800"}',
    f'{{"origin_stamp_ns": {"[" * 900 + "]" * 900}, "origin_mono_ns": 0}}',
)
BOMB = '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><robot name="&b;"/>'
ROBOTS = ("", "<robot", "<robot/>", BOMB, '<robot><joint name="agent_x" type="prismatic"/></robot>', "x" * 100_000)
HUGE_PROMPT = "x" * 10_000_000


def chunk_dimensions(horizon: int, label: str) -> list[MultiArrayDimension]:
    """Of a chunk's array."""
    count = len(JOINTS)
    sizes = ("horizon", horizon, horizon * count), (",".join(JOINTS), count, count), (label, 1, 1)
    return [MultiArrayDimension(label=name, size=size, stride=stride) for name, size, stride in sizes]


@contextmanager
def garbage_on_inputs(harness: SoakHarness) -> Iterator[Callable[[], None]]:
    """Publishers on every input of agent and actuator, for a block. Yields a function that sends a message on each."""
    rng, prompts = harness.rng, _prompts(harness.rng)
    inputs: list[tuple[Topic, Callable[[], Any]]] = [
        (CHUNKS, lambda: _chunk(rng)),
        (HEARTBEAT, lambda: String(data=rng.choice(TEXTS))),
        ((String, "actuator/state", LATCHED), lambda: String(data=rng.choice(TEXTS))),
        ((String, "robot_description", LATCHED), lambda: String(data=rng.choice(ROBOTS))),
        (PROMPT, lambda: String(data=next(prompts))),
        (STATES, lambda: _joints(rng)),
        (IMAGES, lambda: _image(rng)),
    ]
    with ExitStack() as stack:
        outlets = [(stack.enter_context(harness.publisher(topic, listeners=0)), make) for topic, make in inputs]

        def say() -> None:
            for publisher, make in outlets:
                publisher.publish(make())

        yield say


def _prompts(rng: random.Random) -> Iterator[str]:
    """Refused every one: too long, or not text. The first one is huge."""
    yield HUGE_PROMPT
    while True:
        yield rng.choice(("\x01", "\x1b]0;x\x07", "y" * 5000))


def _chunk(rng: random.Random) -> Float64MultiArray:
    """Either of no form at all, or of a stranger's session with values from nowhere."""
    horizon = rng.choice((0, 1, 16, 1000))
    now_ns = time.monotonic_ns() + rng.choice((0, -(10**12), 10**12))
    facts = {"origin_stamp_ns": now_ns, "origin_mono_ns": now_ns, "host": host_id(), "session": "garbage",
             "frame": 0, "request": rng.randrange(100), "epoch": 0}  # fmt: skip
    label = rng.choice((json.dumps(facts), rng.choice(TEXTS)))
    dims = chunk_dimensions(horizon, label)[: rng.choice((0, 2, 3, 3))]
    layout = MultiArrayLayout(dim=dims, data_offset=rng.choice((0, 7)))
    count = rng.choice((0, 3, horizon * len(JOINTS)))
    return Float64MultiArray(layout=layout, data=[rng.choice(NUMBERS) for _ in range(count)])


def _joints(rng: random.Random) -> JointState:
    """Names without numbers, numbers without names, and numbers that are none."""
    names = rng.choice(([], list(JOINTS), [""] * 1000, ["\x01"]))
    return JointState(name=names, position=[float("nan")] * rng.randrange(4))


def _image(rng: random.Random) -> Image:
    size = rng.choice((0, 96, 60_000))
    pixels = np.zeros(rng.choice((0, 7, 96 * 96)), np.uint8)
    encoding, step = rng.choice(("rgb8", "", "16UC1", "rgb8 ")), rng.choice((0, 288, 2**32 - 1))
    return Image(height=size, width=size, step=step, encoding=encoding, data=pixels)
