"""A second one of what there should be one of: an agent, a camera; and a node that comes late."""

from __future__ import annotations

import json
import time

import numpy as np

from auras_ros.live.soak.faults.kinds import PATIENCE_S, Times
from auras_ros.live.soak.faults.messages import IMAGES_HZ, IMAGES_S, SIDE, used
from auras_ros.live.soak.other import JOINTS
from auras_ros.live.soak.qos import CAMERA, EVERY, RELIABLE
from auras_ros.live.soak.scene import SoakHarness
from auras_ros.live.soak.witness import ACTION
from auras_ros.nodes.common.messages import host_id, json_message
from auras_ros.ros import Context, Node, SignalHandlerOptions, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.image import image_message
from auras_ros.ros.msg import Float64MultiArray, Image, MultiArrayDimension, MultiArrayLayout, String
from auras_ros.ros.srv import Trigger

CHUNKS_HZ, CHUNKS_S = 20.0, (1.0, 2.0)
FIRST_REQUEST = 10**9  # of the rival's chunks: commands name the chunk that they come from
HORIZON = 16


def second_agent(harness: SoakHarness) -> Times:
    """It publishes chunks of the right form, newer than the other's, and heartbeats that say it is not active. Nobody
    follows it. Measured to the first chunk that is counted as another session's."""
    node, counted = harness.witness, _of_others(harness)
    chunks = node.create_publisher(Float64MultiArray, "agent/chunk", RELIABLE)
    beats = node.create_publisher(String, "agent/heartbeat", RELIABLE)
    try:
        harness.until(lambda: chunks.get_subscription_count() > 0 < beats.get_subscription_count(), PATIENCE_S)
        begin_ns, lasts_s = harness.now_ns(), harness.rng.uniform(*CHUNKS_S)
        at_ns: int | None = None
        request = FIRST_REQUEST
        while harness.now_ns() - begin_ns < lasts_s * 1e9:
            request += 1
            chunks.publish(_chunk(harness.now_ns(), request))
            beats.publish(json_message({"session": "rival", "lifecycle": "inactive", "state": ""}))
            harness.pause(1.0 / CHUNKS_HZ)
            if at_ns is None and _of_others(harness) > counted:
                at_ns = int(harness.witness.state["mono_ns"])
        end_ns = harness.now_ns()
    finally:
        node.destroy_publisher(chunks)
        node.destroy_publisher(beats)
    followed = [each for each in harness.judge.sent if each.request is not None and each.request >= FIRST_REQUEST]
    if followed:
        harness.judge.violate("second_agent: followed", f"{len(followed)} commands are of its chunks")
    used(harness, begin_ns, end_ns, "another agent")
    return begin_ns, at_ns


def _chunk(now_ns: int, request: int) -> Float64MultiArray:
    """To the table's corner, and newer than any."""
    origin = {"origin_stamp_ns": time.time_ns(), "origin_mono_ns": now_ns, "host": host_id(), "session": "rival",
              "frame": request, "request": request, "epoch": 0}  # fmt: skip
    count = len(JOINTS)
    dims = [
        MultiArrayDimension(label="horizon", size=HORIZON, stride=HORIZON * count),
        MultiArrayDimension(label=",".join(JOINTS), size=count, stride=count),
        MultiArrayDimension(label=json.dumps(origin), size=1, stride=1),
    ]
    return Float64MultiArray(layout=MultiArrayLayout(dim=dims), data=np.zeros(HORIZON * count))


def _of_others(harness: SoakHarness) -> int:
    return int(harness.witness.state["counters"]["refused"].get("other_session", 0))


def second_camera(harness: SoakHarness) -> Times:
    """Good images of something else, on the same topic at the same time: whose are right nobody can know, but what is
    commanded keeps all that is promised of commands. Measured to the next command of a chunk."""
    publisher = harness.witness.create_publisher(Image, "camera/top/image_raw", CAMERA)
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    try:
        harness.until(lambda: publisher.get_subscription_count() > 0, PATIENCE_S)
        begin_ns, lasts_s = harness.now_ns(), harness.rng.uniform(*IMAGES_S)
        while harness.now_ns() - begin_ns < lasts_s * 1e9:
            publisher.publish(image_message(pixels, stamp_ns=time.time_ns(), frame_id="top", encoding="rgb8"))
            harness.pause(1.0 / IMAGES_HZ)
        end_ns = harness.now_ns()
    finally:
        harness.witness.destroy_publisher(publisher)
    used(harness, begin_ns, end_ns, "another camera on its topic")
    return end_ns, harness.first_of("armed", end_ns, PATIENCE_S)


def late_node(harness: SoakHarness) -> Times:
    """A participant of its own, of this process, that comes when all others are long there. Measured from its beginning
    until it has heard a command and knows a service."""
    heard: list[int] = []
    at_ns, context = harness.now_ns(), Context()
    init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node, executor = Node("late", context=context), SingleThreadedExecutor(context=context)
        executor.add_node(node)
        node.create_subscription(Float64MultiArray, f"/{ACTION}", lambda _: heard.append(harness.now_ns()), EVERY)
        client = node.create_client(Trigger, "/actuator/arm")

        def found() -> bool:
            executor.spin_once(timeout_sec=0.0)
            return bool(heard) and client.service_is_ready()

        found_ns = harness.now_ns() if harness.until(found, PATIENCE_S) else None
        executor.shutdown()
        node.destroy_node()
    finally:
        try_shutdown(context=context)
    return at_ns, found_ns
