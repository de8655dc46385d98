"""Resets of workers in real threads (rule 9 of docs/pipeline.md): where they fall, nothing of before comes out.

Guards: a chunk of an older epoch; a chunk from an observation of before the reset.
"""

from __future__ import annotations

from collections import Counter

import pytest

from auras_ros.clock import MonotonicClock
from auras_ros.pipeline.live import Live
from tests.pipeline.real_time import PLANS, Held, World, executor


@pytest.mark.parametrize("text", PLANS)
def test_a_frame_that_is_under_way_at_a_reset_gives_nothing(text: str) -> None:
    """Every worker is in a frame that would emit; nobody is between its end and its emission: no race is allowed."""
    world, forgotten = World(), list[int]()
    made = executor(text)
    held = [Held(worker) for worker in made.workers]
    made.workers = tuple(held)
    live = Live(made, world.latch, world.take)
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= 5)  # a full pipeline: each frame finishes a request
        for worker in reversed(held):  # dec: what generates needs one that still perceives
            worker.hold()
        live.reset(lambda: forgotten.append(MonotonicClock().now_ns()))
        before = len(world.emissions)
        for worker in held:
            worker.release()
        world.until(lambda: len(world.emissions) >= before + 5)
    finally:
        for worker in held:
            worker.release()
        live.halt()
        made.close()
    assert [emission.epoch for emission in world.emissions[:before]] == [0] * before
    for emission in world.emissions[before:]:
        assert emission.epoch == 1
        assert min(seen.mono_ns for seen in emission.contexts) >= forgotten[0]


@pytest.mark.parametrize("text", PLANS)
def test_after_a_reset_nothing_old_comes_out(text: str) -> None:
    """At any moment. A worker that has ended its frame may hand it out while the epoch changes: once, and no later."""
    world, resets, emitted = World(), list[int](), list[int]()
    clock = MonotonicClock()
    live = Live(executor(text), world.latch, world.take)
    live.start()
    try:
        for _ in range(5):
            live.reset(lambda: resets.append(clock.now_ns()))
            emitted.append(len(world.emissions))
            epoch = live.executor.ledger.epoch
            world.until_epoch(epoch)
    finally:
        live.halt()
        live.executor.close()
    for epoch, count in enumerate(emitted, 1):
        came = list(zip(world.threads, world.emissions, strict=True))[count:]
        late = Counter(name for name, emission in came if emission.epoch < epoch)
        assert all(times == 1 for times in late.values()), f"epoch {epoch}: {late}"
    for emission in world.emissions:
        if emission.epoch > 0:
            assert min(seen.mono_ns for seen in emission.contexts) >= resets[emission.epoch - 1]
