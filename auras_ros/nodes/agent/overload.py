"""How old an agent's actions get under a plan, and what to do when they get too old: the age contract.

Pure logic on the times it is given. A single late chunk is no overload (the actuator judges every action by itself);
several of the last few are: then the fallback plan, and when that is late too, nothing at all. Its frames go on
unpublished, and once so many of them in a row were in time they are published again: who was slow needs no person.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from auras_ros.pipeline.plan import Plan, PlanError, TooSlowError

STRIKES, WINDOW = 3, 10  # so many late chunks among so many are an overload


class OverloadLevel(str, Enum):
    """What the agent runs."""

    FIRST = "first"
    FALLBACK = "fallback"
    HALTED = "halted"


def check_age(plan: Plan, duration_ns: int, max_age_ms: float) -> None:
    """Refuse a plan whose chunks cannot keep the contract (0: there is none). Raises PlanError where the
    plan's own frame period is too long, TooSlowError where `duration_ns` is, which was measured and may be less."""
    oldest_ms, each_ms = plan.oldest_ns(duration_ns) / 1e6, plan.interval_ns(duration_ns) / 1e6
    if 0 < max_age_ms < oldest_ms:
        never = max_age_ms < plan.oldest_ns(0) / 1e6
        raise (PlanError if never else TooSlowError)(
            f"plan: '{plan}': with frames of {duration_ns / 1e6:.1f} ms and a chunk each {each_ms:.1f} ms its actions "
            f"would get {oldest_ms:.1f} ms old, max_age_ms is {max_age_ms:g}"
        )


class Overload:
    """Judges every chunk as it is finished and says what to run. Not thread-safe.

    max_age_ns: 0 means no limit. Overruns of the frame grid count only while there is a fallback to go to: they make
    chunks late, and whether too late is judged by their age.
    """

    def __init__(self, max_age_ns: int, has_fallback: bool) -> None:
        self._max_age_ns, self._has_fallback = max_age_ns, has_fallback
        self.reset()

    def _in_time(self) -> bool:
        """Halted: whether the newest chunks were all in time."""
        return len(self._window) == WINDOW and not any(self._window)

    def reset(self) -> None:
        """Back to the first plan."""
        self.step, self.late, self.overruns, self.oldest_ns = OverloadLevel.FIRST, 0, 0, 0
        self._window: deque[bool] = deque(maxlen=WINDOW)

    def finished(self, plan: Plan, age_ns: int, duration_ns: int) -> bool:
        """A chunk is there; its observation is age_ns old, its frame took duration_ns. Whether `step` changed."""
        self.oldest_ns = age_ns + plan.interval_ns(duration_ns)
        late = 0 < self._max_age_ns < self.oldest_ns
        if self.step is OverloadLevel.HALTED:
            self._window.append(late)
            if self._in_time():
                self.step = OverloadLevel.FALLBACK if self._has_fallback else OverloadLevel.FIRST
                self._window.clear()
            return self.step is not OverloadLevel.HALTED
        overrun = plan.mode != "par" and 0 < plan.frame_period_ms * 1e6 < duration_ns
        self.late, self.overruns = self.late + late, self.overruns + overrun
        may_fall_back = self.step is OverloadLevel.FIRST and self._has_fallback
        self._window.append(late or (overrun and may_fall_back))
        if sum(self._window) < STRIKES:
            return False
        self.step = OverloadLevel.FALLBACK if may_fall_back else OverloadLevel.HALTED
        self._window.clear()
        return True
