"""The agent dies or hangs: the actuator, a process of its own, holds within 150 ms."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

import numpy as np
import pytest

from tests.nodes.stand_ins import Robot
from tests.nodes.wire import MS, Child, Children, Watch

HOLD_WITHIN_MS = 150  # the best of a few, for a machine that is busy
LATE_MS = 1000  # no one is later; without the watch a chunk is driven for 1.6 s
TRIES = 3


@pytest.fixture
def driven(actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str) -> Child:
    """A fake agent that drives an armed actuator with the shipped time-out."""
    actuator(agent_timeout_ms=100.0)
    agent = children.fake_agent("first", checkpoint)
    watch.arm()
    watch.armed()
    return agent


def held_after_ms(watch: Watch, since_ns: int) -> float:
    """The first hold came, at the last command."""
    hold = watch.first("holding", since_ns)
    before = [heard for heard in watch.actions if heard.label.tick < hold.label.tick][-1]
    np.testing.assert_array_equal(hold.values, before.values)
    assert hold.label.source == "hold"
    after_ms = (hold.label.mono_ns - since_ns) / MS
    assert after_ms <= LATE_MS
    return after_ms


def test_a_killed_agent_is_followed_by_a_hold_and_its_successor_waits_to_be_armed(
    driven: Child, children: Children, watch: Watch, checkpoint: str
) -> None:
    agent, best_ms = driven, math.inf
    for number in range(TRIES):
        refused, killed_ns = watch.count("other_session"), agent.send(signal.SIGKILL)
        best_ms = min(best_ms, held_after_ms(watch, killed_ns))
        held = watch.first("holding", killed_ns)
        successor = f"successor {number}"
        agent = children.fake_agent(successor, checkpoint)
        watch.until(lambda n=refused: watch.count("other_session") >= n + 3, "chunks of the new session refused")
        assert watch.states[-1]["agent"] == successor
        since = watch.since(held.label.mono_ns)
        assert {heard.label.state for heard in since} == {"holding"}
        assert all(np.array_equal(heard.values, held.values) for heard in since)
        watch.arm()
        watch.armed("the new agent drives once armed")
        said = watch.state_where(lambda state: state["state"] == "armed", "armed")
        assert said["session"] == successor
        if best_ms <= HOLD_WITHIN_MS:
            return
    pytest.fail(f"held {best_ms:.0f} ms after the kill at best")


def test_a_stopped_agent_is_followed_by_a_hold_and_goes_on_by_itself(driven: Child, watch: Watch) -> None:
    best_ms = math.inf
    for _ in range(TRIES):
        best_ms = min(best_ms, held_after_ms(watch, driven.send(signal.SIGSTOP)))
        driven.send(signal.SIGCONT)
        watch.armed("the same session goes on")
        assert watch.states[-1]["session"] == "first"
        if best_ms <= HOLD_WITHIN_MS:
            return
    pytest.fail(f"held {best_ms:.0f} ms after the stop at best")


def test_another_agents_heartbeat_does_not_stand_for_the_one_that_died(
    driven: Child, children: Children, watch: Watch, checkpoint: str
) -> None:
    """Without the session in the watch, the dead agent's chunk would be driven to its end."""
    watch.hear_agent()
    children.fake_agent("bystander", checkpoint, "silent")
    watch.until(lambda: any(beat["session"] == "bystander" for beat in watch.beats), "the bystander's heartbeat")
    watch.armed()
    held_after_ms(watch, driven.send(signal.SIGKILL))
    reason = watch.state_where(lambda state: state["state"] == "holding", "holding")["reason"]
    assert reason.startswith(("agent silent", "joint_states: no new position"))  # the first of them alone is said
