"""The referee's wiring on the real wire: its peers are nodes of this process, answering as the real ones do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.clock import MonotonicClock
from auras_ros.live.referee import referee
from auras_ros.live.referee.episode import Rules
from auras_ros.live.referee.measures import SETTLED_NS
from auras_ros.live.referee.node import ACTION, PROVENANCE, STATE, RefereeNode, rgb8
from auras_ros.live.referee.referee import Call
from auras_ros.nodes.actuator.commands import DEADLINE_TICKS
from auras_ros.nodes.common.qos import LATCHED
from auras_ros.ros import Duration, Future, Node, QoSProfile, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.image import image_message
from auras_ros.ros.msg import (
    DiagnosticArray,
    DiagnosticStatus,
    Float64MultiArray,
    KeyValue,
    MultiArrayDimension,
    MultiArrayLayout,
    String,
)
from auras_ros.ros.srv import Trigger

LIMIT_S = 30.0
STATUS = "pusht/status"
SERVICES = ["actuator/disarm", "pusht/reset", "agent/reset", "actuator/arm"]
RATE_HZ = 100.0


class Peers(Node):
    """Table, actuator and agent in one: services that say yes, and messages on demand."""

    def __init__(self) -> None:
        super().__init__("peers")
        deadline = Duration(nanoseconds=round(DEADLINE_TICKS * 1e9 / RATE_HZ))
        self.asked: list[str] = []
        self.action = self.create_publisher(Float64MultiArray, ACTION, QoSProfile(depth=1, deadline=deadline))
        self.state = self.create_publisher(String, STATE, LATCHED)
        self.status = self.create_publisher(String, STATUS, 10)
        self.provenance = self.create_publisher(DiagnosticArray, PROVENANCE, 10)
        for name in SERVICES:
            self.create_service(Trigger, name, lambda _, response, name=name: self._yes(name, response))

    def _yes(self, name: str, response: Any) -> Any:
        self.asked.append(name)
        response.success = True
        return response

    def tell_status(self, step: int, **more: Any) -> None:
        now_ns = time.monotonic_ns()
        told = {"episode": 0, "seed": 0, "step": step, "success": False, "done": False}
        told |= {
            "sub_goals": {"coverage": 0.1},
            "waiting": step == 0,
            "stamp_ns": now_ns,
            "mono_ns": now_ns,
            "action": None,
            **more,
        }
        self.status.publish(String(data=json.dumps(told)))

    def tell_state(self) -> None:
        told = {"state": "armed", "reason": "valid chunk", "mono_ns": time.monotonic_ns(), "scheduling": "other"}
        self.state.publish(String(data=json.dumps(told)))

    def tell_chunk(self, request: str = "4") -> None:
        times = ("origin_mono_ns", "latched_ns", "perceived_ns", "generated_ns", "published_ns")
        values = [KeyValue(key=key, value="1") for key in times] + [KeyValue(key="request", value=request)]
        self.provenance.publish(DiagnosticArray(status=[DiagnosticStatus(message="chunk", values=values)]))

    def act(self, **more: Any) -> None:
        label = {"state": "armed", "source": "chunk", "index": 1, "age_ns": 5, "request": 4, "tick": 9}
        label |= {"mono_ns": time.monotonic_ns(), **more}
        dims = [MultiArrayDimension(label=text, size=1, stride=1) for text in ("agent_x,agent_y", json.dumps(label))]
        self.action.publish(Float64MultiArray(layout=MultiArrayLayout(dim=dims), data=[1.0, 2.0]))


class Stage:
    """Referee and peers, spun together until something is so."""

    def __init__(self) -> None:
        self.peers = Peers()
        self.node = RefereeNode("pusht", None, RATE_HZ, None, MonotonicClock())
        self._executor = SingleThreadedExecutor()
        for each in (self.peers, self.node):
            self._executor.add_node(each)

    def until(self, so: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not so():
            assert time.monotonic() < end_s, f"never: {what}"
            self._executor.spin_once(timeout_sec=0.05)
            self.node.step()

    def play(self) -> None:
        """Everything was heard of, and the first episode is armed."""
        peers, node = self.peers, self.node

        def all_heard() -> bool:
            peers.tell_status(0)
            peers.tell_state()
            peers.tell_chunk()
            return not node.missing()

        self.until(all_heard, "everything is there")
        referee = node.begin(Rules())

        def playing() -> bool:
            peers.tell_status(0)
            return referee.playing

        self.until(playing, "the episode is armed")

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        self.peers.destroy_node()


@pytest.fixture
def stage(ros_domain_id: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(referee, "CALL_TIMEOUT_NS", 60 * 10**9)  # none is asked again because the machine is slow
    init(args=[])
    made = Stage()
    yield made
    made.close()
    try_shutdown()


def test_it_says_what_is_missing_until_it_was_heard(stage: Stage) -> None:
    stage.until(lambda: not set(SERVICES) & set(stage.node.missing()), "the services are there")
    assert stage.node.missing() == [STATUS, STATE, PROVENANCE]

    def told() -> bool:
        stage.peers.tell_chunk()
        return PROVENANCE not in stage.node.missing()

    stage.until(told, "the chunk was heard")
    assert stage.node.missing() == [STATUS, STATE]


def test_an_untouched_table_is_armed_by_three_calls(stage: Stage) -> None:
    stage.play()
    assert stage.peers.asked == ["actuator/disarm", "agent/reset", "actuator/arm"]


def test_a_silent_actuator_misses_deadlines_that_dds_reports(stage: Stage) -> None:
    """Actions come until arming has settled, then none: DDS itself says that the deadline passed."""
    stage.play()
    measures = stage.node.measures

    def settled() -> bool:
        stage.peers.act()
        spans = measures.actions
        return bool(spans) and spans[-1].mono_ns - spans[0].mono_ns > 2 * SETTLED_NS

    stage.until(settled, "actions for a while")
    before = measures.figures()["deadline_misses"]
    stage.until(lambda: measures.figures()["deadline_misses"] > before, "a missed deadline")
    assert measures.figures()["staleness_ms_n"] == len(measures.actions)


def test_garbage_is_counted_and_what_follows_is_taken(stage: Stage) -> None:
    stage.play()
    node, peers = stage.node, stage.peers
    rubbish: list[Callable[[], None]] = [
        lambda: peers.status.publish(String(data="{")),
        lambda: peers.tell_status(1, sub_goals={"coverage": "much"}),
        lambda: peers.tell_status(1, refused=[1]),
        lambda: peers.state.publish(String(data='{"state": "armed"}')),
        lambda: peers.state.publish(String(data='{"state":"armed","reason":"","mono_ns":1,"counters":[1]}')),
        lambda: peers.state.publish(String(data='{"state":"armed","reason":"","mono_ns":Infinity}')),
        lambda: peers.tell_status(1, sub_goals={"coverage": 10**400}),
        lambda: peers.tell_chunk(request="many"),
        lambda: peers.action.publish(Float64MultiArray(data=[1.0])),
        lambda: peers.act(mono_ns="now"),
    ]
    for i, send in enumerate(rubbish):
        send()
        stage.until(lambda expected=i + 1: node.unreadable == expected, f"number {i} was counted")  # type: ignore[misc]
    peers.tell_status(7)
    peers.act(request=11)
    referee = node.referee
    assert referee is not None
    stage.until(lambda: referee.status is not None and referee.status.step == 7, "the status after it")
    stage.until(lambda: any(mark.request == 11 for mark in node.measures.actions), "the action after it")
    assert referee.playing


def test_a_finished_node_leaves_the_episode_unfinished(stage: Stage) -> None:
    stage.play()
    stage.peers.act()
    stage.until(lambda: len(stage.node.measures.actions) == 1, "an action")
    stage.node.finish()
    assert stage.node.referee is not None
    assert stage.node.referee.unfinished is not None
    assert len(stage.node.measures.spans) == 1


def test_an_answer_that_took_too_long_belongs_to_the_past(stage: Stage) -> None:
    """Else the answer to a call of the last episode could pass for one of this."""
    forgotten: list[Future] = []
    made: list[Future] = []

    def call_async(_request: Any) -> Future:
        made.append(Future())
        return made[-1]

    client = SimpleNamespace(call_async=call_async, remove_pending_request=forgotten.append)
    stage.node._calls[Call.ARM] = client  # type: ignore[assignment]
    stage.node._ask(Call.ARM)
    stage.node._ask(Call.ARM)
    assert forgotten == made[:1]


def test_only_plain_rgb_pictures_are_taken() -> None:
    picture = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    message = image_message(picture, stamp_ns=1, frame_id="", encoding="rgb8")
    assert (rgb8(message, "camera/top/image_raw") == picture).all()
    message.step = 16
    coloured = image_message(picture, stamp_ns=1, frame_id="", encoding="bgr8")
    empty = image_message(picture[:0], stamp_ns=1, frame_id="", encoding="rgb8")
    for other in (message, coloured, empty):
        with pytest.raises(ValueError, match="camera/top/image_raw: expected rgb8 without padding"):
            rgb8(other, "camera/top/image_raw")
