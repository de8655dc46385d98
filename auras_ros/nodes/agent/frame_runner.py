"""The agent while it is active: it runs frames, publishes chunks with their provenance, and changes the plan at
overload.

The workers' threads call in here. The threads of every plan run from activation on, but only those of the active plan
are given observations: so changing the plan is one step at an epoch boundary, and takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from auras_ros.action import Chunk
from auras_ros.clock import MonotonicClock
from auras_ros.loading.pipeline import Pipeline
from auras_ros.nodes.agent.actuator_watch import ActuatorWatch
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.overload import Overload, OverloadLevel
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.loaded_node import STALL_S
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched


class ChunkGate(Protocol):
    """Which chunks may be published: those of the active prompt (`prompt`), while no monitor pauses (`monitors`)."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Publishing and every change of what may be published exclude each other."""
        ...

    @property
    def blocked_because(self) -> str:
        """Why no chunk is published; empty if nothing blocks. Any thread."""
        ...

    def connect(self, begin_epoch: Callable[[Callable[[], None]], None], next_epoch: Callable[[], int]) -> None:
        """Frames are about to run. begin_epoch(change) calls `change` at their boundary, where an epoch begins whose
        number is next_epoch()."""
        ...

    def answered(self, epoch: int) -> str | None:
        """The prompt that a chunk of this epoch answers; None: it must not be published. Whoever holds `lock`."""
        ...


class FrameRunner:
    """publish(chunk, emission) and, when overload changes what runs, overload_changed(level) are called from the
    workers' threads. pipelines: of the first plan, and of the fallback plan if there is one. gate: which chunks may be
    published; they are, and the plan is changed, under its lock.
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        inputs: ObservationInputs,
        actuator: ActuatorWatch,
        gate: ChunkGate,
        settings: AgentSettings,
        publish: Callable[[Chunk, Emission], None],
        overload_changed: Callable[[OverloadLevel], None],
    ) -> None:
        self._pipelines, self._inputs, self._actuator, self._gate = pipelines, inputs, actuator, gate
        self.settings, self._publish, self._overload_changed = settings, publish, overload_changed
        self.overload = Overload(round(settings.max_age_ms * 1e6), len(pipelines) > 1)
        self._monotonic = MonotonicClock()
        self._halted = False
        self._number = 0  # of the active plan
        self.lives = [self._live(number) for number in range(len(pipelines))]
        newest = max((pipeline.executor.ledger for pipeline in pipelines), key=lambda ledger: ledger.epoch)
        self.pipeline.executor.ledger.follow(newest)  # drops requests of an earlier activation
        gate.connect(self._begin_epoch, lambda: self.pipeline.executor.ledger.epoch + 1)

    def _live(self, number: int) -> Live:
        return Live(
            self._pipelines[number].executor,
            lambda now_ns: self._latch(number, now_ns),
            lambda emission: self._emit(number, emission),
            self.settings.core_numbers(),
            self.settings.threads,
            self._inputs.arrivals if self.settings.phase_lock else None,
        )

    @property
    def pipeline(self) -> Pipeline:
        """Of the active plan."""
        return self._pipelines[self._number]

    @property
    def live(self) -> Live:
        """Of the active plan."""
        return self.lives[self._number]

    def open(self) -> None:
        """Take observations from now on; then each of `lives` may be started."""
        self._inputs.open(self._arrived, self.reset, self.earliest_ns)

    def earliest_ns(self) -> int:
        """No frame of the active plan starts before this time."""
        return self.live.earliest_ns()

    def broken(self) -> bool:
        """Whether a worker has ended by itself."""
        working = all(live.working() for live in self.lives)
        return not working and not self._halted  # in this order, because halting ends the workers too

    def halt(self, timeout_s: float = STALL_S) -> bool:
        """Publish nothing from now on, and end every worker after its frame. Returns whether all have ended."""
        with self._gate.lock:
            self._halted = True
        self._inputs.shut()
        for live in self.lives:
            live.halt(timeout_s)
        return all(live.ended() for live in self.lives)

    def reset(self) -> None:
        """Start a new epoch with the first plan, and forget all observations."""
        self.live.reset(self._inputs.reset)
        with self._gate.lock:
            self._enter(0)
            self.overload.reset()
        self._arrived()

    def _begin_epoch(self, change: Callable[[], None]) -> None:
        live = self.live
        live.reset(change)
        if self.live is not live:  # the plan has changed meanwhile: the epoch that was said to come is its next one
            self.live.reset(lambda: None)

    def under_way(self) -> dict[str, int]:
        """Worker and plan -> when its frame began."""
        return {
            f"{name} of '{live.executor.plan}'": at
            for live in self.lives
            for name, at in live.meter.under_way().items()
        }

    def _arrived(self) -> None:
        self.live.arrived()

    def _latch(self, number: int, now_ns: int) -> Latched | None:
        """The newest observation, or None if it may not be used or the actuator is silent."""
        pipeline = self._pipelines[number]
        if not self._actuator.executes(pipeline.session):
            pipeline.not_executed()
        if number != self._number or self._halted or self._gate.blocked_because:
            return None
        observation = self._inputs.latch(now_ns)
        if observation is None or self._actuator.silent():
            return None
        return pipeline.latched(observation)

    def _emit(self, number: int, emission: Emission) -> None:
        pipeline = self._pipelines[number]
        with self._gate.lock:
            active = number == self._number and emission.epoch == pipeline.executor.ledger.epoch
            prompt = self._gate.answered(emission.epoch)
            if self._halted or not active or self._actuator.silent() or prompt is None:
                pipeline.not_executed()
                return
            if self.overload.level is OverloadLevel.HALTED:
                pipeline.not_executed()
            else:
                chunk = pipeline.chunk(emission)
                self._publish(replace(chunk, provenance=replace(chunk.provenance, prompt=prompt)), emission)
            changed = self._judge(pipeline.plan, emission)
        if changed:
            self._overload_changed(self.overload.level)
            self._arrived()

    def _judge(self, plan: Plan, emission: Emission) -> bool:
        """Check a finished chunk's age. Returns whether that changes the overload level."""
        age_ns = self._monotonic.now_ns() - emission.origin.mono_ns
        changed = self.overload.finished(plan, age_ns, emission.generated_ns - emission.latched_ns)
        if changed and self.overload.level is OverloadLevel.FALLBACK:
            self._enter(1)  # no change after HALTED
        return changed

    def _enter(self, number: int) -> None:
        """Continue with another plan in the next epoch; requests in flight of the previous plan are dropped."""
        if number != self._number:
            self._pipelines[number].executor.ledger.follow(self.pipeline.executor.ledger)
            self._number = number
