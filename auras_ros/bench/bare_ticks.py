"""A process that only wakes at a fixed rate: how late this machine itself is, whatever runs on it.

    python -m auras_ros.bench.bare_ticks PRIORITY SECONDS

`auras bench ros` starts it beside the actuator, with the actuator's rate and SCHED_FIFO priority. On a virtual machine
whose host is busy its errors are as large as the actuator's. It prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.actuator.realtime import configure_process

PERIOD_NS = 10_000_000


def measure(priority: int, seconds: float) -> dict[str, float]:
    """|time between two wakes - the period|, ms: p50, p99, max and n."""
    configure_process(priority)
    clock = MonotonicClock()
    count = max(1, round(seconds * 1e9 / PERIOD_NS))
    woken_ns = np.zeros(count + 1, dtype=np.int64)
    begin_ns = clock.now_ns()
    for number in range(count + 1):
        clock.sleep_until_ns(begin_ns + (number + 1) * PERIOD_NS)
        woken_ns[number] = clock.now_ns()
    errors_ms = np.abs(np.diff(woken_ns) - PERIOD_NS) / 1e6
    p50, p99 = np.percentile(errors_ms, [50, 99])
    return {"p50": float(p50), "p99": float(p99), "max": float(errors_ms.max()), "n": count}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), float(sys.argv[2]))))
