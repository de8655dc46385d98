"""The bridge in a process of its own, seen over real topics on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import pytest

from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy, init, spin_once, try_shutdown
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import (
    ClockMsg,
    CompressedImage,
    Float64,
    Float64MultiArray,
    Image,
    JointState,
    MultiArrayDimension,
    MultiArrayLayout,
    String,
)
from auras_ros.ros.srv import Trigger

DT_NS = 100_000_000
PATIENCE_S = 30.0
SEEN = QoSProfile(depth=50, reliability=ReliabilityPolicy.BEST_EFFORT)


class Watcher:
    """A node that keeps all that the bridge says, and sends actions and resets."""

    def __init__(self, world: str = "pusht", camera: str = "top", channels: str = "agent_x,agent_y") -> None:
        self.node = Node("watcher")
        self.channels, self.patience_s = channels, PATIENCE_S
        self.images: dict[int, np.ndarray] = {}
        self.joints: dict[int, JointState] = {}
        self.status: list[dict[str, Any]] = []
        self.rewards: list[float] = []
        self.node.create_subscription(Image, f"camera/{camera}/image_raw", self._on_image, SEEN)
        self.node.create_subscription(JointState, "joint_states", self._on_joints, SEEN)
        self.node.create_subscription(String, f"{world}/status", self._on_status, 50)
        self.node.create_subscription(Float64, f"{world}/reward", lambda m: self.rewards.append(m.data), 50)
        self._action = self.node.create_publisher(Float64MultiArray, "action", 10)
        self._reset = self.node.create_client(Trigger, f"{world}/reset")

    def _on_image(self, message: Any) -> None:
        pixels = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
        assert (message.encoding, message.step) == ("rgb8", 3 * message.width)
        self.images[stamp_ns(message)] = pixels.copy()

    def _on_joints(self, message: Any) -> None:
        self.joints[stamp_ns(message)] = message

    def _on_status(self, message: Any) -> None:
        self.status.append(json.loads(message.data))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self.patience_s
        while not condition():
            assert time.monotonic() < end, f"not within {self.patience_s} s: {what}; last status {self.status[-1:]}"
            spin_once(self.node, timeout_sec=0.1)

    def connected(self) -> None:
        self.until(lambda: bool(self.status), "a status")
        self.until(lambda: self._action.get_subscription_count() > 0, "somebody who takes actions")

    def act(self, values: list[float], names: str = "") -> None:
        dims = [MultiArrayDimension(label=names or self.channels, size=len(values), stride=len(values))]
        self._action.publish(Float64MultiArray(layout=MultiArrayLayout(dim=dims), data=values))

    def send(self, payload: bytes) -> None:
        """Bytes as an action, whether they are one or not."""
        self._action.publish(payload)

    def act_until(self, values: list[float], condition: Callable[[], bool], what: str) -> None:
        """Send once: the topic is reliable. The bridge then goes on with it."""
        self.connected()
        self.act(values)
        self.until(condition, what)

    def reset(self) -> dict[str, Any]:
        self.until(self._reset.service_is_ready, "the reset service")
        future = self._reset.call_async(Trigger.Request())
        self.until(future.done, "an answer to reset")
        assert future.result().success
        return dict(json.loads(future.result().message))

    @property
    def last(self) -> dict[str, Any]:
        return self.status[-1]


@pytest.fixture
def watcher(ros_domain_id: int) -> Iterator[Watcher]:
    init(args=[])
    made = Watcher()
    yield made
    made.node.destroy_node()
    try_shutdown()


class Bridges:
    """Starts bridges and leaves none behind."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, code: str = "") -> subprocess.Popen[str]:
        parameters = [word for each in arguments for word in ("-p", each)]
        run = ["-c", code] if code else ["-m", "auras_ros.sim.bridge.node"]
        command = [sys.executable, *run, "--ros-args", *parameters]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.processes.append(child)
        return child


@pytest.fixture
def bridge(ros_domain_id: int) -> Iterator[Bridges]:
    starter = Bridges()
    yield starter
    for child in starter.processes:
        status = child.poll()
        child.kill()
        _, errors = child.communicate()
        print(f"bridge {child.pid}: {'was running' if status is None else f'status {status}'}; it said: {errors}")


def test_image_state_status_and_reward_come_each_step_with_one_stamp(watcher: Watcher, bridge: Bridges) -> None:
    bridge("seed:=5")
    watcher.until(lambda: len(watcher.images) >= 4 and len(watcher.status) >= 6, "images")
    stamps = {each["stamp_ns"] for each in watcher.status}
    common = stamps & set(watcher.images) & set(watcher.joints)
    assert len(common) >= 3
    for stamp in common:
        assert watcher.images[stamp].shape == (96, 96, 3)
        assert list(watcher.joints[stamp].name) == ["agent_x", "agent_y"]
        assert len(watcher.joints[stamp].position) == 2
    assert abs(watcher.last["stamp_ns"] - time.time_ns()) < PATIENCE_S * 1e9  # the system's clock
    steps = {(later["mono_ns"] - watcher.status[0]["mono_ns"]) % DT_NS for later in watcher.status}
    assert steps == {0}  # on one absolute grid
    assert (watcher.last["seed"], watcher.last["waiting"], watcher.last["step"]) == (5, True, 0)
    assert watcher.last["action"] is None
    assert set(watcher.rewards) == {0.0}


@pytest.mark.parametrize(("compression", "error"), [("jpeg", 3.0), ("png", 0.0)])
def test_the_compressed_camera_shows_the_same_picture(
    watcher: Watcher, bridge: Bridges, compression: str, error: float
) -> None:
    """Guards against swapped colours: cv2 writes BGR."""
    bridge(f"compression:={compression}")
    seen: dict[int, Any] = {}
    topic = "camera/top/image_raw/compressed"
    watcher.node.create_subscription(CompressedImage, topic, lambda m: seen.update({stamp_ns(m): m}), SEEN)
    watcher.until(lambda: bool(set(seen) & set(watcher.images)), "a compressed image of a raw one's stamp")
    stamp = max(set(seen) & set(watcher.images))
    assert seen[stamp].format == f"rgb8; {compression} compressed bgr8"
    decoded = cv2.imdecode(np.frombuffer(seen[stamp].data, np.uint8), cv2.IMREAD_COLOR)
    raw = cv2.cvtColor(watcher.images[stamp], cv2.COLOR_RGB2BGR)
    assert np.abs(decoded.astype(int) - raw).mean() <= error


def test_the_viewer_is_square_and_of_the_size_asked_for(watcher: Watcher, bridge: Bridges) -> None:
    bridge("viewer_px:=200")
    seen: list[Any] = []
    watcher.node.create_subscription(Image, "camera/viewer/image_raw", seen.append, SEEN)
    watcher.until(lambda: bool(seen), "a viewer image")
    assert (seen[0].height, seen[0].width, seen[0].encoding) == (200, 200, "rgb8")


def test_garbage_is_refused_and_counted_and_the_sentinel_after_it_applied(watcher: Watcher, bridge: Bridges) -> None:
    bridge()
    watcher.act_until([256.0, 300.0], lambda: watcher.last["step"] >= 2, "steps")
    nan, inf = float("nan"), float("inf")
    for garbage in ([], [1.0], [1.0, 2.0, 3.0], [nan, 1.0], [1.0, inf], [-inf, 1.0], [-1.0, 5.0], [5.0, 513.0]):
        watcher.act(garbage)
    watcher.act([5.0, 5.0], names="agent_y,agent_x")
    watcher.until(lambda: sum(watcher.last["refused"].values()) == 9, "all are counted")
    for payload in (b"\xff" * 68, bytes(1_000_000), b"\0\0\0\x40" + bytes(64)):
        watcher.send(b"\0\1\0\0" + payload)
    watcher.act([100.0, 400.0])
    watcher.until(lambda: watcher.last["action"] == [100.0, 400.0], "the sentinel is active")
    refused = {"size": 3, "not_finite": 3, "out_of_range": 2, "channels": 1, "unreadable": 3}
    assert watcher.last["refused"] == refused
    # Reliable and in order: nothing beyond the limits was ever active before it either.
    assert {tuple(each["action"]) for each in watcher.status if each["action"]} == {(256.0, 300.0), (100.0, 400.0)}


def test_the_world_waits_for_the_first_action_then_goes_on_without(watcher: Watcher, bridge: Bridges) -> None:
    bridge("action_timeout_ms:=150")
    watcher.until(lambda: len(watcher.images) >= 3, "images while waiting")
    assert {(each["step"], each["waiting"]) for each in watcher.status} == {(0, True)}
    still = list(watcher.images.values())
    assert all(np.array_equal(still[0], image) for image in still)
    watcher.act_until([20.0, 20.0], lambda: watcher.last["timeouts"] >= 2, "steps on an old action")
    assert watcher.last["action"] == [20.0, 20.0]
    assert watcher.last["step"] >= 3


def test_reset_starts_the_next_seed_and_waits_again(watcher: Watcher, bridge: Bridges) -> None:
    bridge("seed:=20")
    watcher.act_until([256.0, 256.0], lambda: watcher.last["step"] >= 1, "a step")
    assert watcher.reset() == {"episode": 1, "seed": 21}
    watcher.until(lambda: watcher.last["episode"] == 1, "a status of the next episode")
    assert (watcher.last["seed"], watcher.last["step"], watcher.last["waiting"]) == (21, 0, True)


def test_an_episode_ends_and_the_next_begins_by_itself(watcher: Watcher, bridge: Bridges) -> None:
    bridge("max_steps:=3", "seed:=1")
    watcher.act_until([256.0, 256.0], lambda: watcher.last["episode"] == 1, "the next episode")
    ended = [each for each in watcher.status if each["done"]]
    assert {(each["step"], each["seed"], each["success"]) for each in ended} == {(3, 1, False)}
    assert (watcher.last["seed"], watcher.last["waiting"], watcher.last["done"]) == (2, True, False)


@pytest.mark.parametrize("drift_px", ["0.0", "3.0"])
def test_only_the_drifting_tee_moves_by_itself(watcher: Watcher, bridge: Bridges, drift_px: str) -> None:
    bridge(f"drift_px:={drift_px}", "seed:=3")
    watcher.until(lambda: bool(watcher.joints and watcher.images), "joint states and an image")
    position = [float(each) for each in next(iter(watcher.joints.values())).position]
    before = next(iter(watcher.images.values()))

    def later() -> list[int]:
        stamps = {each["stamp_ns"] for each in watcher.status if each["step"] >= 5}
        return sorted(stamps & set(watcher.images))

    watcher.act_until(position, lambda: bool(later()), "an image of a later step")
    after = watcher.images[later()[-1]]
    moved = not np.array_equal(before, after)
    assert moved == (drift_px == "3.0")


def test_simulated_time_starts_at_zero_and_is_in_every_stamp(watcher: Watcher, bridge: Bridges) -> None:
    """It advances by one step each control step, and forward over a reset."""
    order: list[tuple[str, int]] = []
    node = watcher.node
    node.create_subscription(ClockMsg, "/clock", lambda m: order.append(("clock", stamp_ns(m.clock))), SEEN)
    node.create_subscription(Image, "camera/top/image_raw", lambda m: order.append(("image", stamp_ns(m))), SEEN)
    bridge("publish_clock:=true")
    watcher.until(lambda: len(watcher.status) >= 3, "status")
    watcher.reset()
    count = len(watcher.status)
    watcher.until(lambda: len(watcher.status) >= count + 3 and len(order) > 6, "status after the reset")
    stamps = [each["stamp_ns"] for each in watcher.status]
    assert_steps(stamps)
    assert stamps[0] % DT_NS == 0
    assert stamps[0] < PATIENCE_S * 1e9
    clocks = [at for kind, at in order if kind == "clock"]
    assert_steps(clocks)
    assert {at for kind, at in order if kind == "image"} & set(clocks)


def assert_steps(stamps: list[int]) -> None:
    """One after another; some may be lost on their way."""
    steps = np.diff(stamps)
    assert min(steps) == DT_NS
    assert not (steps % DT_NS).any()


@pytest.mark.parametrize(
    ("argument", "named"),
    [("drift_px:=-0.5", "drift_px"), ("viewer_px:=3", "viewer_px"), ("seed:=first", "seed")],
    ids=["by its range", "by its meaning", "by its type"],
)
def test_a_bad_parameter_ends_it_with_status_2_and_is_named(bridge: Bridges, argument: str, named: str) -> None:
    child = bridge(argument)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 2
    assert errors.startswith("error: pusht: ")
    assert named in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(watcher: Watcher, bridge: Bridges, number: signal.Signals) -> None:
    child = bridge()
    watcher.until(lambda: bool(watcher.status), "a status")
    child.send_signal(number)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0, errors
    assert "Traceback" not in errors


def test_a_world_that_breaks_ends_the_process(bridge: Bridges) -> None:
    """Guards against a dead tick thread behind a live node: topics there, images gone."""
    code = (
        "import sys\nfrom auras_ros.sim.bridge import node as b\n"
        "def tick(self, grid_ns): raise RuntimeError('the table broke')\n"
        "b.Game.tick = tick\nsys.exit(b.main())"
    )
    child = bridge(code=code)
    _, errors = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 1
    assert "the table broke" in errors
