"""The agent's inputs with time in the test's hands: the node, its graph and both clocks are doubled, and messages go
straight into the callbacks."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import Contract
from auras_ros.nodes.agent import image_preparation, inputs
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common import stamps
from auras_ros.nodes.common.input_counters import STATE
from auras_ros.observation import Observation, ObservationSpec
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros.image import image_message, to_time_msg
from auras_ros.ros.msg import Header, Image, JointState
from tests.nodes.controllers import channel
from tests.nodes.payloads import serialized

MS = 1_000_000
HOUR_MS = 3_600_000
WALL_MS = 10**9
PATIENCE_S = 20.0
SPEC = ObservationSpec.from_dict(
    {
        "cameras": [{"name": "top", "height": 4, "width": 6}],
        "state": {"names": ["x"]},
        "history": 1,
        "dt_ms": 100,
    }
)


CONTRACT = Contract.from_dict({"dt_ms": 100.0, "channels": [channel("x")]})


class Bench:
    """Inputs whose wall clock and monotonic clock are set here, ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spec: ObservationSpec = SPEC, **settings: Any) -> None:
        self.mono_ms, self.wall_ms, self.simulated = 0, WALL_MS, False
        self.said: list[str] = []
        self.epochs, self.news = 0, threading.Semaphore(0)
        self.next_frame_ms = 0
        self.callbacks: dict[str, Any] = {}
        for module in (inputs, image_preparation, stamps):
            monkeypatch.setattr(module, "MonotonicClock", lambda: self)
        monkeypatch.setattr(inputs, "RepeatedLines", lambda: RepeatedLines(clock=lambda: self.mono_ms / 1e3))
        self.publishers: dict[str, list[Any]] = {}  # topic -> what the ROS graph says of its publishers
        say = lambda text, **_: self.said.append(text)  # noqa: E731
        clock = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=self.wall_ms * MS))
        clock.create_jump_callback = self._on_jumps
        node: Any = SimpleNamespace(
            get_clock=lambda: clock,
            get_logger=lambda: SimpleNamespace(warning=say, info=say),
            get_parameter=lambda name: SimpleNamespace(value=self.simulated),
            resolve_topic_name=lambda topic: topic if topic.startswith("/") else f"/{topic}",
            get_publishers_info_by_topic=lambda topic: self.publishers.get(topic, []),
            count_publishers=lambda topic: len(self.publishers.get(topic, [])),
            get_topic_names_and_types=self._graph,
        )
        qos: Any = SimpleNamespace(node=node, create_subscription=self._subscribe)
        self.spec = spec
        self.inputs = ObservationInputs(node, spec, AgentSettings(**settings), qos, CONTRACT)
        self.inputs.open(self.news.release, self._on_clock_jump, lambda: self.next_frame_ms * MS)

    def _graph(self) -> list[tuple[str, list[str]]]:
        return [(topic, sorted({info.topic_type for info in infos})) for topic, infos in self.publishers.items()]

    def now_ns(self) -> int:
        return self.mono_ms * MS

    def _on_jumps(self, threshold: Any, post_callback: Any) -> Any:
        self.threshold, self.jump = threshold, post_callback
        return SimpleNamespace(unregister=lambda: None)

    def _subscribe(self, kind: Any, topic: str, callback: Any, *_: Any, **__: Any) -> Any:
        self.callbacks[topic] = callback
        return SimpleNamespace(close=lambda: None)

    def _on_clock_jump(self) -> None:
        self.epochs += 1
        self.inputs.reset()

    def passes(self, ms: int) -> None:
        self.mono_ms += ms
        self.wall_ms += ms

    def image(self, ahead_ms: int = 0, value: int = 0, at_ns: int | None = None, **changes: Any) -> None:
        """One that is taken now. at_ns: its stamp, if that is to be another time's."""
        ns = (self.wall_ms + ahead_ms) * MS if at_ns is None else at_ns
        message = image_message(np.full((4, 6, 3), value, np.uint8), stamp_ns=ns, frame_id="top", encoding="rgb8")
        for field, given in changes.items():
            setattr(message, field, given)
        self.show(message)

    def show(self, message: Image, topic: str = "camera/top/image_raw") -> None:
        self.callbacks[topic](serialized(message))

    def joints(self, ahead_ms: int = 0, publisher: bytes = b"driver", **positions: float) -> None:
        header, given = (
            Header(stamp=to_time_msg((self.wall_ms + ahead_ms) * MS), frame_id="table"),
            positions or {"x": 1.0},
        )
        message = JointState(header=header, name=list(given), position=list(given.values()))
        self.callbacks[STATE](serialized(message), {"publisher_gid": publisher})

    def sees(self) -> int | None:
        """The stamp of what a frame would latch now, ms before now by the wall clock."""
        observation = self.inputs.latch(self.now_ns())
        return self.wall_ms - observation.origin_stamp_ns // MS if isinstance(observation, Observation) else None
