"""The camera stops: the actuator holds when the newest observation's actions are too old, and not a tick later."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.nodes.stand_ins import Loop, Robot
from tests.nodes.wire import MS, Child, Children, Watch

DEADLINE_MS = 800.0  # max_chunk_age_ms
PERIOD_MS = 10.0


@pytest.mark.parametrize("frozen", [False, True], ids=["silent", "frozen"])
def test_it_holds_within_the_deadline_and_two_periods(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str, frozen: bool
) -> None:
    """Both kinds of stall: no message, and the same one again and again. A new image ends it by itself."""
    actuator(max_chunk_age_ms=DEADLINE_MS)
    children.node("agent", {"checkpoint": checkpoint, "sync_tolerance_ms": 100.0, "frame_period_ms": 100.0})
    watch.hear_agent()
    watch.arm()
    watch.armed()
    robot.images = False
    last = robot.image()
    robot.image_topic.publish(last)
    stalled_ns = time.monotonic_ns()
    again = Loop(0.05, lambda: robot.image_topic.publish(last)) if frozen else None
    try:
        expired_ns = stalled_ns + round(DEADLINE_MS * MS)
        hold = watch.first("holding", stalled_ns)
        assert hold.label.mono_ns <= expired_ns + round(2 * PERIOD_MS * MS)
        after = len(watch.actions)
        watch.until(lambda: len(watch.actions) > after + 50, "half a second of commands")
        assert {heard.label.state for heard in watch.actions[after:]} == {"holding"}
        ages = [heard.label.age_ns for heard in watch.actions if heard.label.age_ns is not None]
        assert max(ages) <= DEADLINE_MS * MS
        stalled = last.header.stamp.sec * 10**9 + last.header.stamp.nanosec
        assert max(chunk["origin_stamp_ns"] for chunk in watch.chunks) <= stalled  # nothing was made up
    finally:
        if again is not None:
            again.close()
    robot.images = True
    watch.armed("it goes on by itself")
