"""Robot descriptions of an attacker, published to an actuator that runs: each is refused, and the next one is read.

Guards: a description that ends the actuator or keeps it from its ticks; a payload that is no text; a refusal of many
lines; limits that an attacker's description leaves behind.
"""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.ros.msg import String
from tests.action.hostile_urdf import HOSTILE, robot
from tests.nodes.controllers import channel, contract_folder
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.payloads import HEADER
from tests.nodes.wire import LATCHED, NAMES, PATIENT, Child, Children, Watch, own_domain

MOST_GROWTH = 64 << 20  # bytes of the actuator, over all attacks
TABLE = [channel(name, unit="m", lower=0.0, upper=512.0, max_rate=4000.0) for name in NAMES]
LIMIT = '<limit lower="0" upper="300" velocity="1000" effort="1"/>'
DESCRIBED = robot("".join(f'<joint name="{name}" type="prismatic">{LIMIT}</joint>' for name in NAMES))
TAKEN = "the contract's, tightened by robot_description"


def text(size: int, data: bytes) -> bytes:
    return HEADER + struct.pack("<I", size) + data


# What is no std_msgs/String. A middleware may drop some of them itself, so they are not counted.
NO_TEXT = {
    "half-a-length": HEADER + b"\1\0",
    "no-characters": text(0, b""),
    "a-length-of-4-GB": text(0xFFFFFFFF, b"<robot/>\0"),
    "a-length-of-2-GB": text(0x7FFFFFFF, b"<robot/>\0"),
    "one-more-than-there-is": text(10, b"<robot/>\0"),
    "another-encapsulation": b"\0\7\0\0" + text(9, b"<robot/>\0")[4:],
    "ones-alone": HEADER + b"\xff" * 64,
}
# Not over the wire: what would take the middleware longer than the test, and numbers, which are refused like "nan".
NOT_SENT = {"attribute-of-100-MB", "infinite", "overflow", "negative-effort", "hexadecimal", "underscores", "no-number"}
REFUSED = [name for name, hostile in HOSTILE.items() if hostile.refused and name not in NOT_SENT]


class Attacked:
    """An actuator in a process of its own, and whoever publishes descriptions to it."""

    def __init__(self, watch: Watch, child: Child) -> None:
        self.watch, self.child, self.diagnosed = watch, child, Diagnosed(watch)
        self.topic = watch.node.create_publisher(String, "robot_description", LATCHED)
        watch.until(lambda: watch.states and self.topic.get_subscription_count(), "the actuator")
        self.memory = self.resident()

    @property
    def unreadable(self) -> int:
        return int(self.watch.states[-1]["unreadable"])

    def resident(self) -> int:
        pages = Path(f"/proc/{self.child.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()

    def lives(self) -> None:
        """It still counts its ticks."""
        tick = self.watch.states[-1]["tick"]
        self.watch.until(lambda: self.watch.states[-1]["tick"] > tick, "ticks")
        assert self.child.process.poll() is None


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    with own_domain():
        watch, children = Watch(), Children(folder)
        given: dict[str, Any] = {"checkpoint": contract_folder(folder / "table", TABLE, 100.0)}
        child = children.node("actuator", given, code=PATIENT)
        try:
            yield Attacked(watch, child)
        finally:
            children.reap()
            watch.close()


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_and_the_actuator_goes_on(name: str, attacked: Attacked) -> None:
    before = attacked.unreadable
    attacked.topic.publish(serialized_text(HOSTILE[name].payload()))
    attacked.watch.until(lambda: attacked.unreadable > before, "the refusal")
    attacked.lives()
    assert attacked.watch.states[-1]["limits"] == "the contract's"


@pytest.mark.parametrize("name", NO_TEXT)
def test_what_is_no_text_ends_nothing(name: str, attacked: Attacked) -> None:
    attacked.topic.publish(NO_TEXT[name])
    attacked.lives()
    assert attacked.watch.states[-1]["limits"] == "the contract's"


def test_a_description_that_is_sent_again_and_again_is_read_once(attacked: Attacked) -> None:
    """A thousand different ones too: one process reads, and of those that come meanwhile only the newest is kept."""
    for number in range(1000):
        attacked.topic.publish(String(data=f"<robot><joint name='{number}' type='x'/></robot>"))
    attacked.lives()
    before = attacked.unreadable
    attacked.topic.publish(String(data="<robot><joint name='last' type='x'/></robot>"))
    attacked.watch.until(lambda: attacked.unreadable > before, "the refusal of the newest")
    attacked.lives()


def test_the_refusal_is_one_line_and_the_next_description_is_taken(attacked: Attacked) -> None:
    attacked.topic.publish(String(data=HOSTILE["a-name-that-forges-a-line"].payload().decode()))
    attacked.diagnosed.until("actuator: chunks", "WARN", "unreadable")
    told = attacked.diagnosed.values("actuator: chunks")["last unreadable"]
    assert told.isprintable()
    assert len(told) <= 300
    attacked.topic.publish(String(data=DESCRIBED))
    attacked.watch.until(lambda: attacked.watch.states[-1]["limits"] == TAKEN, "the limits of a good description")
    assert attacked.resident() - attacked.memory < MOST_GROWTH
    assert "Traceback" not in attacked.child.output


def serialized_text(data: bytes) -> bytes:
    """A std_msgs/String of any bytes."""
    padding = b"\0" * (-(len(data) + 1) % 4)
    return text(len(data) + 1, data + b"\0" + padding)
