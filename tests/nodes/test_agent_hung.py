"""A frame that does not end: the heart stops within a second, the actuator holds, and the process comes to an end."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.agent_heart import BEAT_NS, HangWatch, frame_limit_ns
from tests.nodes.stand_ins import Robot
from tests.nodes.wire import MS, Child, Children, Watch

HELD_WITHIN_MS = 1000 + 150  # found within a second, and the actuator's own watch over the heartbeat
HANGS = """
import threading, time
from auras_ros.pipeline.whole import WholeStrand
run = WholeStrand.run
def hang(self):
    if self._ledger.frames > 10:
        print('hung at', time.monotonic_ns(), flush=True)
        threading.Event().wait()
    run(self)
WholeStrand.run = hang
"""


def test_a_hung_worker_is_found_within_a_second_and_the_process_ends(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    actuator(agent_timeout_ms=100.0, max_chunk_age_ms=60000.0)
    settings = {"checkpoint": checkpoint, "frame_period_ms": 300.0, "camera_age_limit_ms": 2000.0}
    agent = children.node("agent", settings, code=HANGS)
    watch.hear_agent()
    watch.arm()
    watch.until(lambda: "hung at" in agent.output, "the frame hangs")
    hung = re.search(r"hung at (\d+)", agent.output)
    assert hung is not None
    held = watch.state_where(lambda state: state["state"] == "holding", "held")
    assert held["reason"].startswith("agent silent")
    assert (held["mono_ns"] - int(hung[1])) / MS <= HELD_WITHIN_MS
    assert agent.wait() == 1, agent.output
    assert "does not end" in agent.output
    assert "does not end" in watch.beats[-1]["state"]


def look(beats: list[tuple[int, int | None]], limit_ns: int) -> str:
    """The word after these beats: (time passed since the one before, when the frame under way began), ns."""
    watch, now_ns, found = HangWatch(), 0, ""
    for passed_ns, began_ns in beats:
        now_ns += passed_ns
        found = watch.look({} if began_ns is None else {"frame": began_ns}, limit_ns, now_ns)
    return found


def test_the_same_frame_for_too_long_is_found() -> None:
    beats: list[tuple[int, int | None]] = [(BEAT_NS, 5)] * 52
    assert look(beats, 1000 * MS) == "frame"
    assert look(beats[:-2], 1000 * MS) == ""
    assert look([*beats[:30], (BEAT_NS, None), *beats[:30]], 1000 * MS) == ""
    assert look([*beats[:30], *[(BEAT_NS, 6)] * 30], 1000 * MS) == ""


@given(pause_ns=st.integers(0, 10**12))
def test_a_process_that_was_stopped_as_a_whole_is_not_hung(pause_ns: int) -> None:
    assert look([(BEAT_NS, 5), (pause_ns, 5), (BEAT_NS, 5)], 1000 * MS) == ""


def test_the_limit_is_below_a_second_unless_the_policy_is_slow() -> None:
    assert frame_limit_ns(10 * MS) + 4 * BEAT_NS <= 1000 * MS
    assert frame_limit_ns(1000 * MS) == 5000 * MS
