"""A guided agent: its chunks go on from one another while an actuator executes them, and only then."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auras_ros.nodes.agent.actuator_watch import ActuatorWatch
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.ros.msg import Float64MultiArray, String
from tests.nodes.agent_child import Running, running
from tests.nodes.wire import RELIABLE, Watch

CHUNKS = 6
DT_NS = 100_000_000  # of the tiny checkpoint


class Heard:
    """Every chunk with its values, newest last."""

    def __init__(self, agent: Running) -> None:
        self.chunks: list[tuple[dict[str, Any], np.ndarray[Any, Any]]] = []
        agent.watch.node.create_subscription(Float64MultiArray, "agent/chunk", self._on_chunk, RELIABLE)

    def _on_chunk(self, message: Float64MultiArray) -> None:
        facts = json.loads(message.layout.dim[2].label)
        actions = np.array(message.data).reshape([dim.size for dim in message.layout.dim[:2]])
        self.chunks.append((facts, actions))

    def apart(self, agent: Running) -> list[float]:
        """How far each of the next chunks is from the one before, at the first action that is the old one's."""
        count = len(self.chunks)
        agent.watch.until(lambda: len(self.chunks) >= count + CHUNKS, "chunks")
        found = []
        chunks = self.chunks[count + 1 :]  # the first was begun before
        for (old, before), (new, after) in pairwise(chunks):
            moved = math.ceil((new["origin_mono_ns"] - old["origin_mono_ns"]) / DT_NS)
            if moved < len(before):
                found.append(float(np.abs(before[moved] - after[0]).max()))
        assert found
        return found


def test_chunks_go_on_from_one_another_while_they_are_executed_and_only_then(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path, plan="guide=inpaint,frame_period_ms=200", camera_age_limit_ms=2000.0) as agent:
        heard = Heard(agent)
        session = agent.reaches("active")["session"]
        assert max(heard.apart(agent)) > 1.0  # nobody says that they are executed
        agent.robot.actuator_says = {"state": "holding", "session": session}
        assert max(heard.apart(agent)) > 1.0
        agent.robot.actuator_says = {"state": "armed", "session": "another"}
        assert max(heard.apart(agent)) > 1.0
        agent.robot.actuator_says = {"state": "armed", "session": session}
        agent.watch.until(lambda: max(heard.apart(agent)) < 0.1, "chunks that go on")  # not where a word came late


@pytest.mark.parametrize(
    ("says", "executes"),
    [
        ({"state": "armed", "session": "mine"}, True),
        ({"state": "armed", "session": "other"}, False),
        ({"state": "armed"}, False),
        ({"state": "holding", "session": "mine"}, False),
        ({"state": ["armed"], "session": "mine"}, False),
        ({}, False),
    ],
)
def test_only_an_armed_actuator_that_follows_this_session_executes(
    watch: Watch, says: dict[str, Any], executes: bool
) -> None:
    actuator = ActuatorWatch(watch.node, "other", 1000.0, QosWatch(watch.node, lambda: None))
    assert not actuator.executes("mine")
    actuator._on_state(String(data=json.dumps({"mono_ns": actuator._monotonic.now_ns(), **says})))
    assert actuator.executes("mine") is executes
    assert not actuator.executes("")
    actuator.close()


def test_a_silent_actuator_executes_nothing(watch: Watch) -> None:
    actuator = ActuatorWatch(watch.node, "other", 100.0, QosWatch(watch.node, lambda: None))
    old = {"mono_ns": actuator._monotonic.now_ns() - 10**9, "state": "armed", "session": "mine"}
    actuator._on_state(String(data=json.dumps(old)))
    assert not actuator.executes("mine")
    actuator.close()
