"""The agent dies or hangs: the actuator, a process of its own, holds within 150 ms."""

from __future__ import annotations

import signal
from collections.abc import Callable

import numpy as np
import pytest

from tests.nodes.stand_ins import Robot
from tests.nodes.wire import MS, Child, Children, Watch

HOLD_WITHIN_MS = 150


@pytest.fixture
def driven(actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str) -> Child:
    """A fake agent that drives an armed actuator with the shipped time-out."""
    actuator(agent_timeout_ms=100.0)
    agent = children.fake_agent("first", checkpoint)
    watch.arm()
    watch.armed()
    return agent


def held_within(watch: Watch, since_ns: int) -> None:
    """The first hold came in time, at the last command."""
    hold = watch.first("holding", since_ns)
    assert (hold.label.mono_ns - since_ns) / MS <= HOLD_WITHIN_MS
    before = [heard for heard in watch.actions if heard.label.tick < hold.label.tick][-1]
    np.testing.assert_array_equal(hold.values, before.values)
    assert hold.label.source == "hold"


def test_a_killed_agent_is_followed_by_a_hold_and_its_successor_waits_to_be_armed(
    driven: Child, children: Children, watch: Watch, checkpoint: str
) -> None:
    killed_ns = driven.send(signal.SIGKILL)
    held_within(watch, killed_ns)
    held = watch.actions[-1].values
    children.fake_agent("second", checkpoint)
    watch.until(lambda: watch.count("other_session") >= 3, "chunks of the new session refused")
    assert watch.states[-1]["agent"] == "second"
    since = [heard for heard in watch.actions if heard.label.mono_ns > killed_ns + HOLD_WITHIN_MS * MS]
    assert {heard.label.state for heard in since} == {"holding"}
    assert all(np.array_equal(heard.values, held) for heard in since)
    assert watch.call("actuator/arm") == (True, "armed")
    watch.armed("the new agent drives once armed")
    assert watch.state_where(lambda state: state["state"] == "armed", "armed")["session"] == "second"


def test_a_stopped_agent_is_followed_by_a_hold_and_goes_on_by_itself(driven: Child, watch: Watch) -> None:
    held_within(watch, driven.send(signal.SIGSTOP))
    driven.send(signal.SIGCONT)
    watch.armed("the same session goes on")
    assert watch.states[-1]["session"] == "first"


def test_another_agents_heartbeat_does_not_stand_for_the_one_that_died(
    driven: Child, children: Children, watch: Watch, checkpoint: str
) -> None:
    """Without the session in the watch, the dead agent's chunk would be driven to its end."""
    watch.hear_agent()
    children.fake_agent("bystander", checkpoint, "silent")
    watch.until(lambda: any(beat["session"] == "bystander" for beat in watch.beats), "the bystander's heartbeat")
    watch.armed()
    held_within(watch, driven.send(signal.SIGKILL))
    assert watch.state_where(lambda state: state["state"] == "holding", "holding")["reason"].startswith("agent silent")
