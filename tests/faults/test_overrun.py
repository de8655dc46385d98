"""Frames that take longer than their grid: the misses are counted, the newest image wins, and no queue builds up."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.nodes.agent_child import running
from tests.nodes.wire import MS

FRAME_MS, GRID_MS, IMAGE_MS = 250, 100, 50
SLOW = f"""
import time
from auras_ros.pipeline.whole import RequestWorker
run = RequestWorker.run
def slow(self):
    if self._ledger.epoch >= 0:  # not at warm-up
        time.sleep({FRAME_MS / 1000})
    run(self)
RequestWorker.run = slow
"""
CHUNKS = 10
BUSY_MS = 400  # room for a machine that has other work: ten frames of a queue would be seconds


def test_overruns_are_counted_and_each_frame_takes_the_newest_image(checkpoint: str, tmp_path: Path) -> None:
    given = {"plan": f"frame_period_ms={GRID_MS}", "actuator_timeout_ms": 1000.0}
    with running(checkpoint, tmp_path, code=SLOW, **given) as agent:
        watch = agent.watch
        watch.until(lambda: len(watch.provenance) > CHUNKS, f"{CHUNKS} chunks")
        values = [{pair.key: pair.value for pair in array.status[0].values} for array in watch.provenance]
        waits_ms = [(int(each["latched_ns"]) - int(each["origin_mono_ns"])) / MS for each in values]
        assert max(waits_ms) <= IMAGE_MS + BUSY_MS
        late = sorted(waits_ms)[len(waits_ms) // 2]
        assert sorted(waits_ms[-5:])[2] <= late + 5 * IMAGE_MS  # as fresh at the end as in the middle
        requests = [int(each["request"]) for each in values]
        assert all(before < after for before, after in itertools.pairwise(requests))  # one that is dropped has its own

        def counted() -> bool:
            """Each frame misses at least one tick of its grid. Diagnostics come once a second: they may be behind."""
            missed = int(agent.diagnosed("frames", 0, "frames are running")["missed_ticks"])
            return missed >= len(values) and int(agent.diagnosed("plan", 0, "first plan")["overruns"]) >= CHUNKS - 2

        watch.until(counted, "missed ticks and overruns")
