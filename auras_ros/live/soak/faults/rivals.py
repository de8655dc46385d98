"""A second one of what there should be one of: an agent, a camera; and a node that comes late."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import closing

import numpy as np

from auras_ros.live.loop import own_node
from auras_ros.live.soak.faults.messages import IMAGES_HZ, IMAGES_S, black_image
from auras_ros.live.soak.garbage import chunk_dimensions
from auras_ros.live.soak.harness import SoakHarness, Times
from auras_ros.live.soak.topics import ACTION, CHUNKS, EVERY, HEARTBEAT, IMAGES, JOINTS
from auras_ros.nodes.common.messages import host_id, json_message
from auras_ros.ros import BACKEND
from auras_ros.ros.callbacks import Callbacks
from auras_ros.ros.msg import Float64MultiArray, MultiArrayLayout
from auras_ros.ros.srv import Trigger

# In seconds, of Fast DDS: 0.3 to 0.6 in the median, at most 1.07, and no less with announcements every
# 0.2 s instead of 0.4. Our own layer takes at most 0.06.
FOUND_MS = 1000.0 if BACKEND == "dds" else 2000.0
CHUNKS_HZ, CHUNKS_S = 20.0, (1.0, 2.0)
FIRST_REQUEST = 10**9  # of the rival's chunks: commands name the chunk that they come from
HORIZON = 16


def second_agent(harness: SoakHarness) -> Times:
    """It publishes chunks of the right form, newer than the other's, and heartbeats that say it is not active. Nobody
    follows it. Measured to the first chunk that is counted as another session's."""
    counted, requests = _of_others(harness), itertools.count(FIRST_REQUEST + 1)
    refused_ns: list[int] = []
    beat = json_message({"session": "rival", "lifecycle": "inactive", "state": ""})
    with harness.publisher(CHUNKS) as chunks, harness.publisher(HEARTBEAT) as beats:

        def say() -> None:
            if _of_others(harness) > counted:
                refused_ns.append(int(harness.witness.state["mono_ns"]))
            chunks.publish(_chunk(harness.now_ns(), next(requests)))
            beats.publish(beat)

        begin_ns, end_ns = harness.repeat(say, CHUNKS_HZ, harness.rng.uniform(*CHUNKS_S))
    followed = [each for each in harness.judge.sent if each.request is not None and each.request >= FIRST_REQUEST]
    if followed:
        harness.judge.violate("second_agent: followed", f"{len(followed)} commands are of its chunks")
    harness.used(begin_ns, end_ns, "another agent")
    return begin_ns, refused_ns[0] if refused_ns else None


def _chunk(now_ns: int, request: int) -> Float64MultiArray:
    """To the table's corner, and newer than any."""
    origin = {"origin_stamp_ns": time.time_ns(), "origin_mono_ns": now_ns, "host": host_id(), "session": "rival",
              "frame": request, "request": request, "epoch": 0}  # fmt: skip
    layout = MultiArrayLayout(dim=chunk_dimensions(HORIZON, json.dumps(origin)))
    return Float64MultiArray(layout=layout, data=np.zeros(HORIZON * len(JOINTS)))


def _of_others(harness: SoakHarness) -> int:
    return int(harness.witness.state["counters"]["refused"].get("other_session", 0))


def second_camera(harness: SoakHarness) -> Times:
    """Good images of something else, on the same topic at the same time: whose are right nobody can know, but what is
    commanded keeps all that is promised of commands. Measured to the next command of a chunk."""
    with harness.publisher(IMAGES) as publisher:
        seconds = harness.rng.uniform(*IMAGES_S)
        begin_ns, end_ns = harness.repeat(lambda: publisher.publish(black_image()), IMAGES_HZ, seconds)
    harness.used(begin_ns, end_ns, "another camera on its topic")
    return end_ns, harness.first_of("armed", end_ns)


def late_node(harness: SoakHarness) -> Times:
    """A participant of its own, of this process, that comes when all others are long there. Measured from its beginning
    until it has heard a command and knows a service."""
    heard: list[int] = []
    at_ns = harness.now_ns()
    with own_node("late") as node, closing(Callbacks(node)) as callbacks:
        node.create_subscription(Float64MultiArray, f"/{ACTION}", lambda _: heard.append(harness.now_ns()), EVERY)
        client = node.create_client(Trigger, "/actuator/arm")

        def found() -> bool:
            callbacks.spin_once(0.0)
            return bool(heard) and client.service_is_ready()

        return at_ns, harness.now_ns() if harness.until(found) else None
