"""A machine that has other work: busy loops beside the nodes. Slow is not wrong: nothing may end, nobody be needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from auras_ros.live.soak.faults.processes import agent_killed
from auras_ros.live.soak.harness import SoakHarness, Times

LOOPS, LOADED_S = 8, (5.0, 10.0)
STALLED = "stood still"  # in the reason of an actuator that did not get its turn: it may be armed again


@contextmanager
def busy(loops: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many processes that do nothing but run. Each in a session of its own: where the kernel shares cores among
    sessions (autogroup) all of one session count as one process, and every node has its own."""
    loop = [sys.executable, "-S", "-c", "while True: pass"]
    made = [subprocess.Popen(loop, start_new_session=True) for _ in range(loops)]
    try:
        yield made
    finally:
        for each in made:
            each.kill()
            each.wait()


def load(harness: SoakHarness) -> Times:
    """From its end to the next command of a chunk."""
    with busy(LOOPS):
        harness.pause(harness.rng.uniform(*LOADED_S))
    end_ns = harness.now_ns()
    if harness.witness.state["state"] == "disarmed" and STALLED in harness.witness.state["reason"]:
        harness.drive()
    harness.goes_on()
    return end_ns, harness.first_of("armed", end_ns)


def agent_killed_under_load(harness: SoakHarness) -> Times:
    """The next one warms up beside the load: too slow for its plan at first, and neither it nor another may give up."""
    with busy(LOOPS):
        return agent_killed(harness)
