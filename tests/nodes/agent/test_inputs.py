"""What the agent is shown: garbage is dropped and named, a missing stream stops the chunks, and both mend."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from auras_ros.nodes.common.messages import json_message
from auras_ros.ros.image import compressed_message
from auras_ros.ros.msg import CompressedImage, String
from tests.nodes.agent_child import Running, running
from tests.nodes.stand_ins import Loop
from tests.nodes.wire import BEST_EFFORT

PROVENANCE = {
    "origin_stamp_ns", "origin_mono_ns", "host", "session", "frame", "request", "epoch", "context_age_ns", "prompt",
    "adapter", "plan", "checkpoint", "stamps", "stage_ns", "latched_ns", "perceived_ns", "generated_ns", "published_ns",
}  # fmt: skip


def huge_png() -> bytes:
    """A whole PNG whose header says 60000 x 60000."""

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = part(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(bytes(1000))) + part(b"IEND", b"")


def test_a_huge_or_truncated_compressed_image_is_refused_before_it_is_decoded(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path, compressed=True) as agent:
        refuses_compressed(agent)


def refuses_compressed(agent: Running) -> None:
    robot, watch = agent.robot, agent.watch
    topic = watch.node.create_publisher(CompressedImage, "camera/top/image_raw/compressed", BEST_EFFORT)
    good = cv2.imencode(".png", np.full((96, 96, 3), 90, np.uint8))[1].tobytes()

    def send(data: bytes, message_format: str = "rgb8; png compressed bgr8") -> Loop:
        def publish() -> None:
            stamp_ns = time.time_ns()
            topic.publish(compressed_message(data, format=message_format, stamp_ns=stamp_ns, frame_id="top"))

        return Loop(0.05, publish)

    for data, message_format, name in [
        (huge_png(), "png", "too_large"),
        (good[:-20], "png", "bad_data"),
        (b"", "jpeg", "bad_data"),
        (b"GIF89a", "png", "bad_encoding"),
        (good, "16UC1; compressedDepth png", "depth image"),
        (good, "bayer_rggb8; png compressed ", "not grey of 8 bits"),
    ]:
        loop = send(data, message_format)
        try:
            agent.logs(name)
        finally:
            loop.close()
    watch.until(lambda: watch.beats and watch.beats[-1]["state"] == "top missing", "the camera missed by name")
    assert watch.chunks == []
    loop = send(good)
    try:
        agent.chunk("chunks of a good image")
    finally:
        loop.close()
    assert robot.images  # raw ones were there all along: nobody took them


@pytest.fixture(scope="module")
def shared(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One agent for the tests below: it takes seconds to start, and every fault must leave it as good as before."""
    with running(checkpoint, tmp_path_factory.mktemp("agent"), resize_images=False) as agent:
        yield agent


@pytest.fixture
def agent(shared: Running) -> Running:
    shared.chunk("chunks")
    return shared


def test_what_is_wrong_with_images_and_states_is_named_and_nothing_runs_on_it(agent: Running) -> None:
    robot, watch = agent.robot, agent.watch
    robot.images = False
    bad: list[int] = []
    garbage = {
        "bad_step": {"step": 10},
        "bad_encoding": {"encoding": "16UC1"},
        "bad_data": {"data": np.zeros(96 * 96, np.uint8)},
        "bad_size": {"height": 48, "data": np.zeros(96 * 48 * 3, np.uint8)},
        "too_large": {"height": 2**31, "width": 2**31, "step": 2**32 - 1},
    }
    for name, changes in garbage.items():

        def send(changes: dict[str, Any] = changes) -> None:
            message = robot.image(**changes)
            bad.append(message.header.stamp.sec * 10**9 + message.header.stamp.nanosec)
            robot.image_topic.publish(message)

        loop = Loop(0.05, send)
        try:
            agent.logs(name)
        finally:
            loop.close()
    agent.says("top stale")
    robot.images = True
    agent.chunk("chunks once images are good again")
    assert not {chunk["origin_stamp_ns"] for chunk in watch.chunks} & set(bad)

    robot.joints = False
    loop = Loop(0.05, lambda: robot.joints_topic.publish(robot.joint_states(["agent_x"], [1.0])))
    try:
        agent.says("state stale")
        agent.logs("state: stale", "agent_y")
    finally:
        loop.close()
    robot.joints = True
    agent.chunk("chunks once the joint is back")


def test_what_a_jetson_s_cameras_send_is_seen(agent: Running) -> None:
    agent.robot.images = False
    agent.says("top stale")
    fields = {"encoding": "nv12", "step": 96, "data": np.full(96 * 96 * 3 // 2, 128, np.uint8)}
    loop = Loop(0.05, lambda: agent.robot.image_topic.publish(agent.robot.image(**fields)))
    try:
        agent.chunk("chunks of nv12 images")
    finally:
        loop.close()
    agent.robot.images = True


def test_a_camera_that_stops_or_repeats_itself_stops_the_chunks_until_it_is_back(agent: Running) -> None:
    agent.robot.images = False
    agent.says("top stale")
    agent.robot.images = True
    agent.chunk("chunks of new images")
    agent.robot.images = False
    frozen = agent.robot.image()
    loop = Loop(0.05, lambda: agent.robot.image_topic.publish(frozen))
    try:
        agent.says("top stale")
    finally:
        loop.close()
    agent.robot.images = True
    agent.chunk("chunks of new images")


def test_reset_raises_the_epoch_and_every_chunk_says_where_it_comes_from(agent: Running) -> None:
    epoch = agent.chunk("chunks")["epoch"]
    done, text = agent.watch.call("agent/reset")
    assert (done, "epoch" in text) == (True, True)
    assert agent.chunk("chunks of the next epoch")["epoch"] == epoch + 1
    watch = agent.watch
    heard = len(watch.provenance)
    watch.until(lambda: len(watch.provenance) > heard, "provenance")
    status = watch.provenance[-1].status[0]
    fields = {pair.key: pair.value for pair in status.values}
    assert fields.keys() == PROVENANCE
    assert (len(watch.provenance[-1].status), status.name, fields["epoch"]) == (1, "/agent", str(epoch + 1))
    times = [int(fields[f"{name}_ns"]) for name in ("origin_mono", "latched", "perceived", "generated", "published")]
    assert times == sorted(times)


def test_garbage_from_the_actuators_topic_is_no_sign_of_life(agent: Running) -> None:
    topic, agent.robot.actuator_topic = agent.robot.actuator_topic, None
    texts = ["", "[]", "{}", '{"mono_ns": "soon"}', '{"mono_ns": NaN}', '{"mono_ns": Infinity}', "9" * 5000]
    texts.append(json.dumps({"mono_ns": time.monotonic_ns() - 10**12}))  # old words of a dead actuator
    words = iter(texts * 1000)
    loop = Loop(0.02, lambda: topic.publish(String(data=next(words))))
    try:
        agent.says("actuator lost")
    finally:
        loop.close()
    topic.publish(json_message({"mono_ns": time.monotonic_ns()}))
    agent.robot.actuator_topic = topic
    agent.chunk("chunks once the actuator is back")
