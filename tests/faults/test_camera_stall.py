"""The camera stops: the actuator holds when the newest observation's actions are too old, and not a tick later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.nodes.stand_ins import Loop, Robot
from tests.nodes.wire import MS, Child, Children, Watch

DEADLINE_MS = 800.0  # max_chunk_age_ms
PERIOD_MS = 10.0
EARLY_MS = 300  # no camera is why it holds so long before
TRIES = 3


@pytest.mark.parametrize("frozen", [False, True], ids=["silent", "frozen"])
def test_it_holds_within_the_deadline_and_two_periods(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str, frozen: bool
) -> None:
    """Both kinds of stall: no message, and the same one again and again. A new image ends it by itself."""
    actuator(max_chunk_age_ms=DEADLINE_MS)
    children.node("agent", {"checkpoint": checkpoint, "sync_tolerance_ms": 100.0, "plan": "frame_period_ms=100"})
    watch.hear_agent()
    assert any(_holds_and_goes_on(watch, robot, frozen) for _ in range(TRIES)), watch.states[-1]


def _holds_and_goes_on(watch: Watch, robot: Robot, frozen: bool) -> bool:
    """False: the camera was not why it held, since the actuator or the test stood still."""
    watch.arm()
    watch.armed()
    stalls = watch.states[-1]["stalls"]

    def until(condition: Callable[[], Any], what: str) -> bool:
        """Whether the actuator did not stand still before."""
        watch.until(lambda: condition() or watch.states[-1]["stalls"] > stalls, what)
        return bool(watch.states[-1]["stalls"] == stalls)

    robot.images = False
    last = robot.image()
    robot.image_topic.publish(last)
    stalled_ns = time.monotonic_ns()
    expired_ns = stalled_ns + round(DEADLINE_MS * MS)
    again = Loop(0.05, lambda: robot.image_topic.publish(last)) if frozen else None

    def held() -> int | None:
        """Which action is the first one that holds."""
        heard = enumerate(watch.actions)
        return next(
            (i for i, each in heard if each.label.mono_ns >= stalled_ns and each.label.state == "holding"), None
        )

    try:
        if not until(held, "an action that holds"):
            return False
        first = held()
        assert first is not None
        before, hold = (watch.actions[i].label for i in (first - 1, first))
        if hold.mono_ns < expired_ns - EARLY_MS * MS:  # joint states that did not come
            return False
        late_ns = max(0, hold.mono_ns - before.mono_ns - round(PERIOD_MS * MS))  # this tick, which is the machine's
        assert hold.mono_ns <= expired_ns + round(2 * PERIOD_MS * MS) + late_ns
        after = len(watch.actions)
        if not until(lambda: len(watch.actions) > after + 50, "half a second of commands"):
            return False
        assert {heard.label.state for heard in watch.actions[after:]} == {"holding"}
        ages = [heard.label.age_ns for heard in watch.actions if heard.label.age_ns is not None]
        assert max(ages) <= DEADLINE_MS * MS
        stalled = last.header.stamp.sec * 10**9 + last.header.stamp.nanosec
        assert max(chunk["origin_stamp_ns"] for chunk in watch.chunks) <= stalled  # nothing was made up
    finally:
        if again is not None:
            again.close()
        robot.images = True
    begin_ns = time.monotonic_ns()
    return until(
        lambda: any(each.label.state == "armed" and each.label.mono_ns >= begin_ns for each in watch.actions[after:]),
        "it goes on by itself",
    )
