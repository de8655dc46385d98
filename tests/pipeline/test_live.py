"""Workers in real threads: what each mode emits, when frames start, and what a worker that fails does to the others.

Guards: a mode that stands still; frames off their grid; a failure that only stops one thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise, repeat

import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.device import DeviceError
from auras_ros.observation import Arrivals
from auras_ros.pipeline import live as live_module
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.request import Latched, ObservationOrigin, Worker
from tests.pipeline.real_time import PATIENCE_S, PLANS, Around, World, executor

MS = 1_000_000


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


def test_a_worker_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world, failing = World(), executor("fine,mode=dec")
    generate = failing.workers[1]

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


LOOK_NS = 20_000


class Creeping(VirtualClock):
    """Time that passes by being looked at, and by what frames last."""

    def now_ns(self) -> int:
        self.advance(LOOK_NS)
        return super().now_ns()


class Lasting(Around):
    """A worker whose frames last what they are told to, in order."""

    def __init__(self, worker: Worker, clock: VirtualClock, durations_ns: Iterable[int]) -> None:
        super().__init__(worker)
        self._clock, self._durations_ns = clock, iter(durations_ns)

    def run(self) -> None:
        self.worker.run()
        self._clock.advance(next(self._durations_ns))


def test_frames_start_on_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A period of 1 ms, frames shorter and longer: each starts a few looks after a tick, and missed ticks stay missed.

    A clock without a grid would start the frames after 1.5 and 2.6 periods half a period off.
    """
    lengths = [0.2, 1.5, 0.3, 2.6, 0.7, 0.2, 1.2, 0.1]
    ticks = [0, 1, 3, 4, 7, 8, 9, 11, 12]  # worked out by hand
    clock, world = Creeping(), World()
    monkeypatch.setattr(live_module, "MonotonicClock", lambda: clock)
    made = executor("quick,frame_period_ms=1")
    lasting: Iterator[int] = chain((round(length * MS) for length in lengths), repeat(MS // 5))
    made.workers = (Lasting(made.workers[0], clock, lasting),)
    live = Live(made, world.latch, world.take)
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= len(ticks))
    finally:
        live.halt()
        made.close()
    starts = [emission.latched_ns - world.emissions[0].latched_ns for emission in world.emissions[: len(ticks)]]
    assert [start // MS for start in starts] == ticks
    assert max(start % MS for start in starts) <= 3 * LOOK_NS, starts
    assert live.frame_clocks["frame"].skipped == 1 + 2 + 1


class Filmed(Creeping):
    """A camera of 10 ms beside it: its images come as time passes."""

    PERIOD_NS, LOOK_NS = 10 * MS, MS // 4

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__()
        self._arrivals, self.image, self.told = arrivals, 0, lambda: None

    def now_ns(self) -> int:
        self.advance(self.LOOK_NS)
        now_ns = super().now_ns()
        while (self.image + 1) * self.PERIOD_NS <= now_ns:
            self.image += 1
            self._arrivals.came("top", self.image * self.PERIOD_NS)
            self.told()
        return now_ns


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.parametrize("text", ["quick,frame_period_ms=40", "fine,mode=auras,pp_generation=3,frame_period_ms=40"])
def test_frames_keep_in_phase_with_the_camera(text: str, lock: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin 4 ms before an image comes, and stay there where nothing is done about it. Frames last 12 ms."""
    arrivals, world = Arrivals(["top"]), World()
    clock, ages = Filmed(arrivals), list[float]()
    monkeypatch.setattr(live_module, "MonotonicClock", lambda: clock)
    monkeypatch.setattr(live_module, "POLL_S", 0.0)  # time passes with the looks: no reason to wait for real

    def latch(now_ns: int) -> Latched | None:
        if clock.image < 5 or (not ages and now_ns % clock.PERIOD_NS < 6 * MS):
            return None
        ages.append((now_ns - clock.image * clock.PERIOD_NS) / MS)
        return Latched(world.images, world.state, ObservationOrigin(clock.image, clock.image * clock.PERIOD_NS))

    made = executor(text)
    made.workers = (Lasting(made.workers[0], clock, repeat(12 * MS)),)
    live = Live(made, latch, world.take, arrivals=arrivals if lock else None)
    clock.told = live.arrived
    live.start()
    try:
        world.until(lambda: len(world.emissions) >= 24)
    finally:
        live.halt()
        made.close()
    late = sorted(ages[len(ages) // 2 :])
    if lock:
        assert late[round(0.9 * len(late)) - 1] <= 1.0 + 3 * clock.LOOK_NS / MS, late
    else:
        assert late[0] >= 5.0, late
    assert live.frame_clocks[made.workers[0].name].skipped == 0


def test_par_spaces_its_requests() -> None:
    world = World()
    live = Live(executor("quick,mode=par,concurrency=3,frame_period_ms=15"), world.latch, world.take)
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

    def latch(now_ns: int) -> Latched | None:
        looks.release()
        return None

    live = Live(executor("quick"), latch, world.take)
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


def test_workers_take_turns_at_the_cores_they_are_given() -> None:
    own = sorted(os.sched_getaffinity(0))
    world, ran = World(), dict[str, set[int]]()
    made = executor("fine,mode=par,concurrency=2")

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
