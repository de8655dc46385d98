"""The agent while it is active: it runs frames, publishes chunks with their provenance, and changes the plan at
overload.

The workers' threads call in here. The threads of every plan run from activation on, but only those of the active plan
are given observations: so changing the plan is one step at an epoch boundary, and takes no time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from auras_ros.action import Chunk
from auras_ros.clock import MonotonicClock
from auras_ros.loading.pipeline import Pipeline
from auras_ros.nodes.agent.actuator_watch import ActuatorWatch
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.overload import Overload, OverloadLevel
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.request import Emission, Latched

STALL_S = 5.0


class _PlanRuntime:
    """One plan: its pipeline and its threads."""

    def __init__(self, pipeline: Pipeline, live: Live) -> None:
        self.pipeline, self.live = pipeline, live
        self.ledger = pipeline.executor.ledger


class FrameRunner:
    """publish(chunk, emission) and, when overload changes what runs, changed(step) are called from the workers'
    threads. pipelines: of the first plan, and of the fallback plan if there is one. prompt: the wanted prompt;
    active_prompt: the one that the policy uses, or None if it uses none. While they differ no chunk is published.
    """

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        inputs: ObservationInputs,
        actuator: ActuatorWatch,
        overload: Overload,
        publish: Callable[[Chunk, Emission], None],
        changed: Callable[[OverloadLevel], None],
        cores: list[int] | None,
        threads: int,
        prompt: str,
        active_prompt: str | None,
        phase_lock: bool,
    ) -> None:
        self._inputs, self._actuator, self.overload = inputs, actuator, overload
        self._publish, self._changed = publish, changed
        self._monotonic = MonotonicClock()
        self._lock = threading.Lock()  # held for marks and for publishing, never during computation
        self._halted = False
        self._tracks: list[_PlanRuntime] = []
        arrivals = inputs.arrivals if phase_lock else None
        for number, pipeline in enumerate(pipelines):
            take = lambda now_ns, number=number: self._latch(number, now_ns)  # noqa: E731
            give = lambda emission, number=number: self._emit(number, emission)  # noqa: E731
            self._tracks.append(_PlanRuntime(pipeline, Live(pipeline.executor, take, give, cores, threads, arrivals)))
        self._number = 0
        newest = max((track.ledger for track in self._tracks), key=lambda ledger: ledger.epoch)
        self._tracks[0].ledger.follow(newest)  # drops requests of an earlier activation
        self._wanted, spoken = prompt, active_prompt is not None
        self._prompt = active_prompt if active_prompt is not None else prompt
        self._prompt_before = None if spoken else ""
        self._prompt_from = self._tracks[0].ledger.epoch

    @property
    def _track(self) -> _PlanRuntime:
        return self._tracks[self._number]

    @property
    def pipeline(self) -> Pipeline:
        """Of the active plan."""
        return self._track.pipeline

    @property
    def live(self) -> Live:
        """Of the active plan."""
        return self._track.live

    def start(self) -> None:
        self._inputs.open(self._arrived, self.reset, self.earliest_ns)
        for track in self._tracks:
            track.live.start()

    def earliest_ns(self) -> int:
        """No frame of the active plan starts before this time."""
        return self.live.earliest_ns()

    def broken(self) -> bool:
        """Whether a worker has ended by itself."""
        working = all(track.live.working() for track in self._tracks)
        return not working and not self._halted  # in this order, because halting ends the workers too

    def halt(self, timeout_s: float = STALL_S) -> bool:
        """Publish nothing from now on, and end every worker after its frame. Returns whether all have ended."""
        with self._lock:
            self._halted = True
        self._inputs.shut()
        for track in self._tracks:
            track.live.halt(timeout_s)
        return all(track.live.ended() for track in self._tracks)

    def reset(self) -> None:
        """Start a new epoch with the first plan, and forget all observations."""
        self.live.reset(self._inputs.reset)
        with self._lock:
            self._enter(0)
            self.overload.reset()
        self._arrived()

    def set_prompt(self, prompt: str) -> None:
        """Start a new epoch whose chunks answer this prompt."""

        def take() -> None:
            with self._lock:  # the epoch rises right after; what is emitted before still answers the old prompt
                self._prompt_before, self._prompt, self._wanted = self._prompt, prompt, prompt
                self._prompt_from = self._track.ledger.epoch + 1

        self.live.reset(take)

    def want_prompt(self, prompt: str) -> None:
        """Publish no chunk from now on that answers another prompt."""
        with self._lock:
            self._wanted = prompt

    def use_prompt(self, prompt: str, ids: Sequence[int]) -> None:
        """Start a new epoch in which the policy uses this prompt. Raises ValueError and keeps the old one if it cannot.

        A frame that is running may read parts of both; it belongs to the old epoch, and its chunk is dropped.
        """

        def take() -> None:
            with self._lock:  # no chunk is published between setting the ids and the new epoch right after
                for track in self._tracks:
                    track.pipeline.set_prompt(ids)
                self._prompt, self._prompt_before = prompt, None
                self._prompt_from = self._track.ledger.epoch + 1

        self.live.reset(take)

    def under_way(self) -> dict[str, int]:
        """Worker and plan -> when its frame began."""
        return {
            f"{name} of '{track.pipeline.plan}'": at
            for track in self._tracks
            for name, at in track.live.meter.under_way().items()
        }

    def _arrived(self) -> None:
        self.live.arrived()

    def _latch(self, number: int, now_ns: int) -> Latched | None:
        """The newest observation, or None if it may not be used or the actuator is silent."""
        pipeline = self._tracks[number].pipeline
        if not self._actuator.executes(pipeline.session):
            pipeline.not_executed()
        if number != self._number or self._halted or self._wanted != self._prompt:
            return None
        observation = self._inputs.latch(now_ns)
        if observation is None or self._actuator.silent():
            return None
        return pipeline.latched(observation)

    def _emit(self, number: int, emission: Emission) -> None:
        track = self._tracks[number]
        with self._lock:
            active = number == self._number and emission.epoch == track.ledger.epoch
            prompt = self._prompt if emission.epoch >= self._prompt_from else self._prompt_before
            unwanted = prompt is None or self._wanted != self._prompt
            if self._halted or not active or self._actuator.silent() or unwanted:
                track.pipeline.not_executed()
                return
            assert prompt is not None
            if self.overload.step is OverloadLevel.HALTED:
                track.pipeline.not_executed()
            else:
                chunk = track.pipeline.chunk(emission)
                self._publish(replace(chunk, provenance=replace(chunk.provenance, prompt=prompt)), emission)
            step = self._judge(track, emission)
        if step is not None:
            self._changed(step)
            self._arrived()

    def _judge(self, track: _PlanRuntime, emission: Emission) -> OverloadLevel | None:
        """Check a finished chunk's age. Returns the new overload level if it changes."""
        age_ns = self._monotonic.now_ns() - emission.origin.mono_ns
        duration_ns = emission.generated_ns - emission.latched_ns
        if not self.overload.finished(track.pipeline.plan, age_ns, duration_ns):
            return None
        if self.overload.step is OverloadLevel.FALLBACK:
            self._enter(1)  # no change after HALTED
        return self.overload.step

    def _enter(self, number: int) -> None:
        """Continue with another plan in the next epoch; requests in flight of the previous plan are dropped."""
        if number != self._number:
            self._tracks[number].ledger.follow(self._track.ledger)
            self._number = number
