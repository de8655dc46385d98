"""Messages that no node means: of the right type, and of any content. Everything comes from the seed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from auras_ros.live.soak.topics import CHUNKS, IMAGES, JOINTS, LATCHED, PROMPT, RELIABLE, STATES, Topic
from auras_ros.nodes.common.messages import host_id
from auras_ros.ros import Node
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


class Garbage:
    """Publishers on every input of agent and actuator while it lives; `say` sends one message on each."""

    def __init__(self, node: Node, rng: random.Random) -> None:
        self._node, self._rng = node, rng
        self.sent = 0
        inputs: list[tuple[Topic, Callable[[], Any]]] = [
            (CHUNKS, self.chunk),
            ((String, "agent/heartbeat", RELIABLE), self.text),
            ((String, "actuator/state", LATCHED), self.text),
            ((String, "robot_description", LATCHED), lambda: String(data=rng.choice(ROBOTS))),
            (PROMPT, self.prompt),
            (STATES, self.joints),
            (IMAGES, self.image),
        ]
        self._outlets = [(node.create_publisher(*topic), make) for topic, make in inputs]

    def say(self) -> None:
        for publisher, make in self._outlets:
            publisher.publish(make())
        self.sent += len(self._outlets)

    def close(self) -> None:
        for publisher, _ in self._outlets:
            self._node.destroy_publisher(publisher)

    def text(self) -> String:
        return String(data=self._rng.choice(TEXTS))

    def prompt(self) -> String:
        """Refused every one: too long, or not text. The first one is huge."""
        if not self.sent:
            return String(data=HUGE_PROMPT)
        return String(data=self._rng.choice(("\x01", "\x1b]0;x\x07", "y" * 5000)))

    def chunk(self) -> Float64MultiArray:
        """Either of no form at all, or of a stranger's session with values from nowhere."""
        rng = self._rng
        horizon = rng.choice((0, 1, 16, 1000))
        now_ns = time.monotonic_ns() + rng.choice((0, -(10**12), 10**12))
        facts = {"origin_stamp_ns": now_ns, "origin_mono_ns": now_ns, "host": host_id(), "session": "garbage",
                 "frame": 0, "request": rng.randrange(100), "epoch": 0}  # fmt: skip
        label = rng.choice((json.dumps(facts), rng.choice(TEXTS)))
        dims = chunk_dimensions(horizon, label)[: rng.choice((0, 2, 3, 3))]
        layout = MultiArrayLayout(dim=dims, data_offset=rng.choice((0, 7)))
        count = rng.choice((0, 3, horizon * len(JOINTS)))
        return Float64MultiArray(layout=layout, data=[rng.choice(NUMBERS) for _ in range(count)])

    def joints(self) -> JointState:
        """Names without numbers, numbers without names, and numbers that are none."""
        names = self._rng.choice(([], list(JOINTS), [""] * 1000, ["\x01"]))
        return JointState(name=names, position=[float("nan")] * self._rng.randrange(4))

    def image(self) -> Image:
        size = self._rng.choice((0, 96, 60_000))
        pixels = np.zeros(self._rng.choice((0, 7, 96 * 96)), np.uint8)
        encoding = self._rng.choice(("rgb8", "", "16UC1", "rgb8 "))
        return Image(
            height=size, width=size, step=self._rng.choice((0, 288, 2**32 - 1)), encoding=encoding, data=pixels
        )
