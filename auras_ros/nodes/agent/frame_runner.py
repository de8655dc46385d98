"""One active life of the agent: frames run, chunks come out with their provenance, overload changes the plan.

The workers' threads call in here. Every plan's threads live from activation on, and only those of the active plan
are given observations: changing the plan is one step at an epoch boundary, and takes no time.
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
    """publish(chunk, emission) is called from the workers' threads, and so is changed(step) when overload changes what
    runs. pipelines: of the first plan, and of the fallback where there is one. prompt: what is wanted; active_prompt:
    what the policy runs, where it runs by a prompt. While the two differ no chunk is published.
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
        self._lock = threading.Lock()  # held for marks and for publishing, never for computing
        self._halted = False
        self._tracks: list[_PlanRuntime] = []
        arrivals = inputs.arrivals if phase_lock else None
        for number, pipeline in enumerate(pipelines):
            take = lambda now_ns, number=number: self._latch(number, now_ns)  # noqa: E731
            give = lambda emission, number=number: self._emit(number, emission)  # noqa: E731
            self._tracks.append(_PlanRuntime(pipeline, Live(pipeline.executor, take, give, cores, threads, arrivals)))
        self._number = 0
        newest = max((track.ledger for track in self._tracks), key=lambda ledger: ledger.epoch)
        self._tracks[0].ledger.follow(newest)  # what an earlier activation has left on its way is over
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
        """No frame of the active plan starts before."""
        return self.live.earliest_ns()

    def broken(self) -> bool:
        """Whether a worker has ended by itself."""
        working = all(track.live.working() for track in self._tracks)
        return not working and not self._halted  # in this order: halting makes them end too

    def halt(self, timeout_s: float = STALL_S) -> bool:
        """Publish nothing from now on, end every worker after its frame. Whether they did end."""
        with self._lock:
            self._halted = True
        self._inputs.shut()
        for track in self._tracks:
            track.live.halt(timeout_s)
        return all(track.live.ended() for track in self._tracks)

    def reset(self) -> None:
        """A new epoch with the first plan and nothing seen before."""
        self.live.reset(self._inputs.reset)
        with self._lock:
            self._enter(0)
            self.overload.reset()
        self._arrived()

    def set_prompt(self, prompt: str) -> None:
        """A new epoch whose chunks answer this prompt."""

        def take() -> None:
            with self._lock:  # the epoch rises right after: whoever emits before still answers the old one
                self._prompt_before, self._prompt, self._wanted = self._prompt, prompt, prompt
                self._prompt_from = self._track.ledger.epoch + 1

        self.live.reset(take)

    def want_prompt(self, prompt: str) -> None:
        """Publish nothing from now on that answers another one."""
        with self._lock:
            self._wanted = prompt

    def use_prompt(self, prompt: str, ids: Sequence[int]) -> None:
        """A new epoch in which the policy runs this prompt. Raises ValueError, and leaves the old one, where it cannot.

        A frame that is under way may read some of both: it is of the epoch before, and nobody gets its chunk.
        """

        def take() -> None:
            with self._lock:  # no chunk goes out between the ids and the epoch, which rises right after
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
        """The newest observation, where it may be used and somebody would watch over what comes of it."""
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
        """Hold a finished chunk against the age contract; the step that it leads to, if it does."""
        age_ns = self._monotonic.now_ns() - emission.origin.mono_ns
        duration_ns = emission.generated_ns - emission.latched_ns
        if not self.overload.finished(track.pipeline.plan, age_ns, duration_ns):
            return None
        if self.overload.step is OverloadLevel.FALLBACK:
            self._enter(1)  # or stay there, after a halt
        return self.overload.step

    def _enter(self, number: int) -> None:
        """Go on with another plan, in the next epoch; what the one before has on its way is dropped."""
        if number != self._number:
            self._tracks[number].ledger.follow(self._track.ledger)
            self._number = number
