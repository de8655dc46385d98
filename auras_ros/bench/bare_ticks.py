"""A process that only wakes at a fixed rate: how late this machine itself is, whatever runs on it.

    python -m auras_ros.bench.bare_ticks PRIORITY SECONDS

`auras bench ros` starts it beside the actuator, with the actuator's rate and SCHED_FIFO priority. On a virtual machine
whose host is busy its errors are as large as the actuator's. It prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.realtime import IntervalError, IntervalMeter, TickGrid, configure_process

PERIOD_NS = 10_000_000  # the actuator's at 100 Hz


def measure(priority: int, seconds: float) -> tuple[IntervalError | None, int]:
    """The error of the newest intervals, as the actuator measures its own, and how many ticks were skipped."""
    configure_process(priority)
    grid, meter = TickGrid(MonotonicClock(), PERIOD_NS), IntervalMeter(PERIOD_NS)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        meter.tick(grid.wait())
    return meter.summary(), grid.skipped


if __name__ == "__main__":
    error, skipped = measure(int(sys.argv[1]), float(sys.argv[2]))
    if error is None:
        sys.exit("no interval in so short a time")
    print(json.dumps({**asdict(error), "skipped": skipped}))
