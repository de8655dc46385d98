"""What the tests of live executors share: a world that is looked at, workers that wait, executors that are warm."""

from __future__ import annotations

import threading
from collections.abc import Callable

from auras_ros.clock import MonotonicClock
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin, Worker
from auras_ros.pipeline.run_context import RunContext
from tests.policies import tiny

PATIENCE_S = 30.0
PLANS = ["fine", "fine,mode=dec", "fine,mode=par,concurrency=2", "fine,mode=auras,pp_generation=3"]
PLANS += ["fine,mode=auras,pp_perception=2,pp_generation=2,fetch_offset=-1,batched=false"]


class World:
    """An observation a look, stamped with the time of the look; keeps what comes out."""

    def __init__(self) -> None:
        self.images, self.state = tiny.observed(1, 3)
        self.emissions: list[Emission] = []
        self.threads: list[str] = []  # the worker of each
        self._more = threading.Condition()

    def latch(self, now_ns: int) -> Latched | None:
        return Latched(self.images, self.state, ObservationOrigin(now_ns, now_ns))

    def take(self, emission: Emission) -> None:
        with self._more:
            self.emissions.append(emission)
            self.threads.append(threading.current_thread().name)
            self._more.notify_all()

    def until(self, true: Callable[[], bool]) -> None:
        with self._more:
            assert self._more.wait_for(true, PATIENCE_S)

    def until_epoch(self, epoch: int) -> None:
        self.until(lambda: any(emission.epoch == epoch for emission in self.emissions))


class Around:
    """A worker of which one part is replaced."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.name = worker, worker.name
        self.wants, self.begin, self.end = worker.wants, worker.begin, worker.end

    def run(self) -> None:
        self.worker.run()


class Held(Around):
    """A worker that stays in its frame, with its work done, from `hold` to `release`."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._there, self._free = threading.Event(), threading.Event()
        self._free.set()

    def run(self) -> None:
        self.worker.run()
        if not self._free.is_set():
            self._there.set()
            assert self._free.wait(PATIENCE_S)

    def hold(self) -> None:
        """Returns when it is held."""
        self._free.clear()
        assert self._there.wait(PATIENCE_S)

    def release(self) -> None:
        self._free.set()


def executor(text: str) -> Executor:
    plan = Plan.parse(text)
    policy = tiny.checkpoint().policy(plan.generation)
    clock = MonotonicClock()
    like = Latched(*tiny.observed(1, 3), ObservationOrigin(0, 0))
    made = make_executor(RunContext(policy, plan, noise_of(policy, 0), like, clock))
    made.warm_up()
    return made
