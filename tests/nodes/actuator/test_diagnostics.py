"""What the actuator says of itself on /diagnostics: state and reason at once, agent, timing, what was refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import Child, Watch

TASKS = (
    "state",
    "agent",
    "timing",
    "limits",
    "chunks",
    "joint states",
    "command topic",
    "emergency stop",
    "qos",
    "readers",
    "callbacks",
)


def test_every_task_speaks_and_follows_what_happens(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    diagnosed = Diagnosed(watch)
    actuator(agent_timeout_ms=500.0)
    diagnosed.until("actuator: agent", "STALE", "no heartbeat of")
    diagnosed.until("actuator: state", "OK", "disarmed: not armed yet")
    assert {name.removeprefix("actuator: ") for name in diagnosed.newest} == set(TASKS)
    fake.lifecycle = "inactive"
    fake.live()
    diagnosed.until("actuator: agent", "WARN", "'agent' is inactive")
    fake.lifecycle = "active"
    diagnosed.until("actuator: agent", "OK", "'agent' is active: running")
    fake.drive(ramp())
    watch.arm()
    diagnosed.until("actuator: state", "OK", "armed: valid chunk")
    timing = diagnosed.until("actuator: timing", "", "interval error p99")
    assert diagnosed.level("actuator: timing") in ("OK", "WARN")  # by how busy the machine is
    values = diagnosed.values("actuator: timing")
    assert int(values["interval error n"]) > 0, timing
    assert values["scheduling"]
    assert values["memory"]
    fake.chunk(np.full((16, 2), math.nan))
    diagnosed.until("actuator: chunks", "WARN", "refused")
    assert diagnosed.values("actuator: chunks")["refused non_finite"] == "1"
    diagnosed.until("actuator: state", "OK", "armed: valid chunk")  # the next good chunk drives again
    fake.still()
    diagnosed.until("actuator: agent", "STALE", "has been silent for")
    diagnosed.until("actuator: state", "WARN", "holding: agent silent for more than 500 ms")
    watch.call("actuator/stop")
    diagnosed.until("actuator: state", "ERROR", "stopped: stop requested")


def test_a_limit_that_bites_is_named_with_its_channel(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    diagnosed = Diagnosed(watch)
    actuator(blend_ms=0.0)
    fake.live()
    watch.arm()
    diagnosed.until("actuator: limits", "OK", "nothing limited")
    values = np.tile([500.0, 300.0], (16, 1))  # x jumps, y stays
    watch.until(lambda: fake.chunk(values) and watch.actions and watch.actions[-1].values[0] == 500.0, "the jump")
    diagnosed.until("actuator: limits", "OK", "limited: agent_x")
    ticks = lambda: int(diagnosed.values("actuator: limits")["agent_x limited ticks"])  # noqa: E731
    watch.until(lambda: ticks() >= 400 / 40 - 1, "the ticks of the jump, 40 px each")
    assert "agent_y limited ticks" not in diagnosed.values("actuator: limits")
