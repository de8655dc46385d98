"""Stand-ins for the agent, and for the robot with its camera: they say what they are told to, and run nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.action import Chunk, Contract, Provenance
from auras_ros.nodes.common.messages import chunk_message, host_id, json_message
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import image_message, to_time_msg
from auras_ros.ros.msg import Float64MultiArray, Header, Image, JointState, String
from tests.nodes.wire import LATCHED, NAMES


class Loop:
    """Calls something at a fixed rate in a thread of its own until closed; what it raises is raised by `close`."""

    def __init__(self, period_s: float, action: Callable[[], None]) -> None:
        self._period_s, self._action = period_s, action
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._action()
                self._ended.wait(self._period_s)
        except Exception as error:  # noqa: BLE001  (raised by close)
            self._error = error

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


class FakeAgent:
    """Says what an agent says: heartbeats, and chunks of whatever values. It runs no policy."""

    def __init__(self, node: Node, contract: Contract, digest: str, session: str = "fake", name: str = "agent") -> None:
        """digest: of the checkpoint that it says it runs."""
        self.contract, self.session, self.lifecycle = contract, session, "active"
        self.digest = digest
        self.request = 0
        reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self.chunk_topic = node.create_publisher(Float64MultiArray, f"{name}/chunk", reliable)
        self.beat_topic = node.create_publisher(String, f"{name}/heartbeat", newest)
        self._loops: list[Loop] = []

    def message(self, values: Any, **provenance: Any) -> Float64MultiArray:
        """The next chunk: values [horizon, channels], its origin now."""
        self.request += 1
        now_ns = time.monotonic_ns()
        facts = {"origin_stamp_ns": time.time_ns(), "origin_mono_ns": now_ns, "host": host_id()}
        facts |= {"session": self.session, "request": self.request, "frame": self.request}
        chunk = Chunk(np.asarray(values, dtype=np.float64), Provenance(**(facts | provenance)))
        return chunk_message(chunk, self.contract)

    def chunk(self, values: Any, **provenance: Any) -> int:
        """Publish the next chunk; returns its request number."""
        self.chunk_topic.publish(self.message(values, **provenance))
        return self.request

    def beat(self) -> None:
        fields = {"session": self.session, "frame": self.request, "state": "running", "lifecycle": self.lifecycle}
        fields["checkpoint"] = self.digest
        self.beat_topic.publish(json_message(fields))

    def live(self) -> None:
        """Beat every 20 ms from now on."""
        self._loops.append(Loop(0.02, self.beat))

    def drive(self, values: Any) -> None:
        """A chunk every 100 ms from now on."""
        self._loops.append(Loop(0.1, lambda: self.chunk(values) and None))

    def still(self) -> None:
        """End beats and chunks."""
        while self._loops:
            self._loops.pop().close()


def ramp(start: float = 100.0, step: float = 5.0, horizon: int = 16) -> NDArray[np.float64]:
    """A chunk [horizon, 2] that moves, so that a hold is told from a chunk that goes on."""
    return np.stack([start + step * np.arange(horizon), 300.0 - step * np.arange(horizon)], axis=1)


class Robot:
    """Camera and joint states of a table that stands still, and, where asked, an actuator's sign of life."""

    def __init__(self, node: Node, *, period_s: float = 0.05) -> None:
        sensor = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self.image_topic = node.create_publisher(Image, "camera/top/image_raw", sensor)
        self.joints_topic = node.create_publisher(JointState, "joint_states", sensor)
        self.images = self.joints = True
        self.place: Sequence[float] = (100.0, 300.0)
        self.actuator_topic: Any = None
        self.actuator_says: dict[str, Any] = {}
        self._pixels = np.full((96, 96, 3), 200, np.uint8)
        self._node = node
        self._loop = Loop(period_s, self._step)

    def play_actuator(self, name: str = "actuator") -> None:
        """A sign of life, and whatever `actuator_says` beside it."""
        self.actuator_topic = self._node.create_publisher(String, f"{name}/state", LATCHED)

    def image(self, **changes: Any) -> Image:
        message = image_message(self._pixels, stamp_ns=time.time_ns(), frame_id="top", encoding="rgb8")
        for field, value in changes.items():
            setattr(message, field, value)
        return message

    def joint_states(self, names: Sequence[str] = NAMES, position: Sequence[float] | None = None) -> JointState:
        header = Header(stamp=to_time_msg(time.time_ns()), frame_id="table")
        return JointState(header=header, name=list(names), position=list(self.place if position is None else position))

    def _step(self) -> None:
        if self.actuator_topic is not None:
            self.actuator_topic.publish(json_message({"mono_ns": time.monotonic_ns(), **self.actuator_says}))
        if self.joints:
            self.joints_topic.publish(self.joint_states())
        if self.images:
            self.image_topic.publish(self.image())

    def close(self) -> None:
        self._loop.close()
