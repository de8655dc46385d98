"""Payloads that are no message, on any topic that a node of the loop hears. Topics are found by the graph.

What is of the right type and means nothing is `garbage`'s. Everything comes from the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from auras_ros.ros import DurabilityPolicy, Node, QoSProfile, ReliabilityPolicy

# A node of ours, and under whose name it logs.
OURS = {"agent": "agent", "actuator": "actuator", "actuator_stop": "actuator", "pusht": "pusht"}
NOISY = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
HEADER = b"\0\1\0\0"  # CDR, little endian: libddsc carries no other
RUIN = b"\xff" * 12  # a stamp of no day and a name of four billion bytes; a number of elements; no truth value
SIZES = (12, 13, 64, 4096, 100_000)
SHORT = 5  # bytes that fit into a message of any type, with the header


@dataclass(frozen=True)
class Input:
    """A topic, its type, and those of our nodes that hear it, as they call themselves in the log."""

    topic: str
    ros_type: str
    listeners: tuple[str, ...]


def inputs(node: Node) -> list[Input]:
    """By name; what `node` hears itself is no reason to be among them."""
    found = []
    for topic, types in sorted(node.get_topic_names_and_types()):
        hearing = {info.node_name for info in node.get_subscriptions_info_by_topic(topic)}
        listeners = {OURS[name] for name in hearing & OURS.keys()}
        if listeners:
            found.append(Input(topic, types[0], tuple(sorted(listeners))))
    return found


def payload(rng: random.Random) -> bytes:
    """Not to be read as any of the types that are heard here."""
    size = rng.choice(SIZES)
    return HEADER + RUIN + rng.randbytes(size - len(RUIN))


def send(publisher: Any, rng: random.Random) -> None:
    """Publish a payload. Fast DDS refuses one that is longer than any message of the type, as of a Bool: then a short
    one."""
    noise = payload(rng)
    try:
        publisher.publish(noise)
    except RuntimeError:
        publisher.publish(noise[:SHORT])
