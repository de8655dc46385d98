"""The charged clock (rule 12 of docs/pipeline.md): the world moves on while the executor computes.

Durations are given, or drawn around the given ones from a seed, so that a run is the same on every machine. The order
at one instant is fixed: the observation comes, finished frames end, frames begin (those that take no time end at once),
the world acts. So a chunk that ends at a tick is used in that tick, and a frame sees the observation of the instant at
which it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from auras_ros.evaluate.episode_runners import EpisodeRunners, Watch
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import MODES, Plan
from auras_ros.pipeline.request import Worker


def duration_key(mode: str, worker: str) -> str:
    """The key of a duration: the mode, and for dec its worker too."""
    return f"{mode}/{worker}" if mode == "dec" else mode


# the durations that a mode needs; that of its chunks is the last
DURATIONS = {mode: (mode,) for mode in MODES} | {"dec": ("dec/perceive", "dec/generate")}


@dataclass(frozen=True)
class Charged:
    """durations_ns: duration key -> how long a frame of that worker takes (par: a whole request).

    jitter: each frame takes 1 - jitter to 1 + jitter of that, drawn uniformly, so that predictions from the given
    duration are too short as often as too long. The draws depend on `seed` and the worker's index only: every plan with
    the same workers gets the same draws.
    """

    durations_ns: Mapping[str, int]
    jitter: float = 0.0
    seed: int = 0

    name = "charged"

    def __post_init__(self) -> None:
        for key, duration_ns in self.durations_ns.items():
            if duration_ns < 0:
                raise ValueError(f"durations: {key}: must not be negative, got {duration_ns} ns")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter: must be in [0, 1], got {self.jitter}")

    def paced(self, plan: Plan) -> Plan:
        """The plan, with par's requests evenly spaced over its workers unless it has a frame period itself."""
        if plan.mode != "par" or plan.frame_period_ms > 0:
            return plan
        return replace(plan, frame_period_ms=self._duration_ns("par", "") / plan.concurrency / 1e6)

    def play(self, executor: Executor, runners: EpisodeRunners, now_ns: int, watch: Watch) -> None:
        """Go from event to event until no episode is left. The world's grid starts now."""
        mode = executor.plan.mode
        period_ns = 0 if mode == "par" else round(executor.plan.frame_period_ms * 1e6)
        timed = [
            _TimedWorker(worker, FrameClock(period_ns), self._drawn_ns(self._duration_ns(mode, worker.name), place))
            for place, worker in enumerate(executor.workers)
        ]
        tick_ns = now_ns
        while runners.living():
            executor.clock.sleep_until_ns(now_ns)
            if now_ns == tick_ns:
                runners.observe(now_ns, min(each.soonest_ns(now_ns) for each in timed))
            _settle(timed, runners, now_ns)
            if now_ns == tick_ns:
                runners.tick(now_ns)
                watch(runners)
                tick_ns += runners.dt_ns
            wakes = [tick_ns, now_ns + executor.ledger.wait_ns(now_ns)]
            wakes += [each.soonest_ns(now_ns) for each in timed]
            now_ns = min(at_ns for at_ns in wakes if at_ns > now_ns)

    def _drawn_ns(self, duration_ns: int, place: int) -> Iterator[int]:
        """The durations of a worker's frames, one after another, without end."""
        random = np.random.default_rng((self.seed, place))
        while True:
            share = 1.0 + random.uniform(-self.jitter, self.jitter) if self.jitter else 1
            yield round(duration_ns * share)

    def _duration_ns(self, mode: str, worker: str) -> int:
        key = duration_key(mode, worker)
        if key not in self.durations_ns:
            raise ValueError(f"durations: {key} is missing; given: {', '.join(self.durations_ns) or 'none'}")
        return self.durations_ns[key]


def _settle(timed: Sequence[_TimedWorker], runners: EpisodeRunners, now_ns: int) -> None:
    """End frames before beginning others, workers in their order, until nothing more happens at this instant."""
    busy = True
    while busy:
        ended = [each.end(runners, now_ns) for each in timed]
        began = [] if any(ended) else [each.begin(runners, now_ns) for each in timed]
        busy = any(ended) or any(began)


class _TimedWorker:
    """One worker in virtual time: idle, or in a frame that ends at `_ends_ns`. durations_ns: of its frames."""

    def __init__(self, worker: Worker, frames: FrameClock, durations_ns: Iterator[int]) -> None:
        self._worker, self._frames, self._durations_ns = worker, frames, durations_ns
        self._ends_ns: int | None = None

    def soonest_ns(self, now_ns: int) -> int:
        """The earliest time of this worker's next event: the end of its frame, or the start of the next one."""
        return self._frames.next_start_ns(now_ns) if self._ends_ns is None else self._ends_ns

    def end(self, runners: EpisodeRunners, now_ns: int) -> bool:
        """End the frame if it is over. Returns whether one ended."""
        if self._ends_ns is None or self._ends_ns > now_ns:
            return False
        self._ends_ns = None
        runners.take(self._worker.end(now_ns), now_ns)
        return True

    def begin(self, runners: EpisodeRunners, now_ns: int) -> bool:
        """Begin a frame if one is due. Returns whether one began."""
        if self._ends_ns is not None or self._frames.next_start_ns(now_ns) > now_ns:
            return False
        seen = runners.seen(now_ns)
        if not self._worker.wants(seen, now_ns):
            self._frames.idle()
            return False
        self._frames.started(now_ns)
        self._worker.begin(seen, now_ns)
        self._worker.run()
        self._ends_ns = now_ns + next(self._durations_ns)
        runners.frames += int(self._worker.emits)
        return True
