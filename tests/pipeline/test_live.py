"""Strands in real threads: what each mode emits, where a reset falls, and what a strand that fails does to the others.

Guards: a chunk of an older epoch; a chunk from an observation of before the reset; a mode that stands still; a
failure that only stops one thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from auras_ros.clock import MonotonicClock
from auras_ros.device import DeviceError
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, Origin
from auras_ros.policies.noise import noise_tape
from tests.policies import tiny

PATIENCE_S = 30.0
MS = 1_000_000
PLANS = ["fine", "fine,mode=dec", "fine,mode=par,workers=2", "fine,mode=auras,pp_generation=3"]
PLANS += ["fine,mode=auras,pp_perception=2,pp_generation=2,fetch_offset=-1,batched=false"]


class World:
    """An observation a look, stamped with the time of the look; keeps what comes out."""

    def __init__(self) -> None:
        self.images, self.state = tiny.observed(1, 3)
        self.emissions: list[Emission] = []
        self._more = threading.Condition()

    def latch(self, now_ns: int) -> Latched | None:
        return Latched(self.images, self.state, Origin(now_ns, now_ns))

    def take(self, emission: Emission) -> None:
        with self._more:
            self.emissions.append(emission)
            self._more.notify_all()

    def until(self, true: Callable[[], bool]) -> None:
        with self._more:
            assert self._more.wait_for(true, PATIENCE_S)


def executor(text: str) -> Executor:
    plan = Plan.parse(text)
    policy = tiny.checkpoint().policy(plan.generation)
    clock = MonotonicClock()
    made = make_executor(policy, plan, lambda request: noise_tape(policy.noise_shape, 0, request)[None], clock)
    made.warm_up(Latched(*tiny.observed(1, 3), Origin(0, 0)))
    return made


@pytest.mark.parametrize("text", PLANS)
def test_every_mode_emits_each_request_once_and_in_order(text: str) -> None:
    world = World()
    live = Live(executor(text), world.latch, world.take)
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= 12)
    finally:
        live.halt()
        live.executor.close()
    requests = [emission.request for emission in world.emissions]
    assert len(set(requests)) == len(requests)
    if "par" not in text:  # workers overtake each other
        assert requests == list(range(len(requests)))
    stages = live.executor.plan.pp_generation
    for emission in world.emissions:
        assert torch.isfinite(emission.actions).all()
        assert len(emission.contexts) == len(emission.stage_ns) == stages
        origins = [seen.mono_ns for seen in emission.contexts]
        assert origins == sorted(origins)
        assert all(began >= origin for began, origin in zip(emission.stage_ns, origins, strict=True))
        assert emission.origin.mono_ns <= emission.latched_ns <= emission.perceived_ns <= emission.generated_ns


@pytest.mark.parametrize("text", PLANS)
def test_after_a_reset_nothing_old_comes_out(text: str) -> None:
    world, resets = World(), list[int]()
    clock = MonotonicClock()
    live = Live(executor(text), world.latch, world.take)
    live.start()
    try:
        for _ in range(5):
            live.reset(lambda: resets.append(clock.now_ns()))
            epoch = live.executor.ledger.epoch
            world.until(lambda epoch=epoch: any(e.epoch == epoch for e in world.emissions))
    finally:
        live.halt()
        live.executor.close()
    for emission in world.emissions:
        if emission.epoch > 0:
            assert min(seen.mono_ns for seen in emission.contexts) >= resets[emission.epoch - 1]


def test_a_strand_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world, failing = World(), executor("fine,mode=dec")
    generate = failing.strands[1]

    def fail() -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(generate, "run", fail)
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(str(args.exc_value)))
    live = Live(failing, world.latch, world.take)
    live.start()
    for thread in live._threads:
        thread.join(PATIENCE_S)
    assert not live.working()
    assert seen == ["planted"]
    failing.close()


def test_frames_start_on_the_grid() -> None:
    world = World()
    live = Live(executor("quick,frame_period_ms=20"), world.latch, world.take)
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= 10)
    finally:
        live.halt()
        live.executor.close()
    starts = [emission.latched_ns for emission in world.emissions]
    ticks = [(start - starts[0]) // (20 * MS) for start in starts]  # a late start still belongs to its tick
    assert all(later > earlier for earlier, later in pairwise(ticks)), ticks


def test_par_spaces_its_requests() -> None:
    world = World()
    live = Live(executor("quick,mode=par,workers=3,frame_period_ms=15"), world.latch, world.take)
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= 10)
    finally:
        live.halt()
        live.executor.close()
    starts = sorted(emission.latched_ns for emission in world.emissions)
    assert all(later - earlier >= 15 * MS for earlier, later in pairwise(starts))


def test_nothing_runs_without_an_observation() -> None:
    world, looks = World(), threading.Semaphore(0)
    live = Live(executor("quick"), lambda now_ns: looks.release(), world.take)  # type: ignore[func-returns-value, arg-type]
    live.start()
    try:
        for _ in range(5):
            live.arrived()
            assert looks.acquire(timeout=PATIENCE_S)
    finally:
        live.halt()
        live.executor.close()
    assert world.emissions == []
    assert live.executor.frames == 0


def test_strands_take_turns_at_the_cores_they_are_given() -> None:
    own = sorted(os.sched_getaffinity(0))
    world, ran = World(), dict[str, set[int]]()
    made = executor("fine,mode=par,workers=2")

    def latch(now_ns: int) -> Latched | None:
        ran.setdefault(threading.current_thread().name, set()).update(os.sched_getaffinity(0))
        return world.latch(now_ns)

    live = Live(made, latch, world.take, cores=own)
    live.start()
    try:
        world.until(lambda: len(ran) == 2)
    finally:
        live.halt()
        made.close()
    assert ran == {f"worker{i}": {own[i % len(own)]} for i in range(2)}


def test_more_threads_than_cores_are_refused() -> None:
    made = executor("fine")
    with pytest.raises(DeviceError, match="threads 2 on 1 core"):
        Live(made, lambda now_ns: None, lambda emission: None, cores=[0], threads=2)
    made.close()
