"""The age contract: how old an agent's actions get under a plan, and what to do when they get too old.

Pure logic on given times. One late chunk is not an overload (the actuator checks the age of every action); several of
the last few are. Then the fallback plan runs, and if that is late too, nothing is published: its frames continue, and
once WINDOW of them in a row were in time they are published again, without anybody's help.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from auras_ros.pipeline.plan import Plan, PlanError, TooSlowError

STRIKES, WINDOW = 3, 10  # STRIKES late chunks among the last WINDOW are an overload


class OverloadLevel(str, Enum):
    """What the agent runs: the first plan, the fallback plan, or frames whose chunks are not published."""

    FIRST = "first"
    FALLBACK = "fallback"
    HALTED = "halted"


def check_age(plan: Plan, duration_ns: int, max_age_ms: float) -> None:
    """Refuse a plan whose actions get older than max_age_ms (0: no limit). Raises PlanError if the plan's own frame
    period is too long, TooSlowError if the measured `duration_ns` is, which may be shorter another time."""
    oldest_ms, each_ms = plan.oldest_ns(duration_ns) / 1e6, plan.interval_ns(duration_ns) / 1e6
    if 0 < max_age_ms < oldest_ms:
        never = max_age_ms < plan.oldest_ns(0) / 1e6
        raise (PlanError if never else TooSlowError)(
            f"plan: '{plan}': with frames of {duration_ns / 1e6:.1f} ms and a chunk each {each_ms:.1f} ms its actions "
            f"would get {oldest_ms:.1f} ms old, max_age_ms is {max_age_ms:g}"
        )


class Overload:
    """Checks every chunk as it is finished; `level` says what to run. Not thread-safe.

    max_age_ns: 0 means no limit. Overruns of the frame grid count only while there is a fallback plan to switch to:
    they make chunks late, and chunks that are too late are detected by their age.
    """

    def __init__(self, max_age_ns: int, has_fallback: bool) -> None:
        self._max_age_ns, self._has_fallback = max_age_ns, has_fallback
        self.reset()

    def reset(self) -> None:
        """Return to the first plan."""
        self.level, self.late, self.overruns, self.oldest_ns = OverloadLevel.FIRST, 0, 0, 0
        self._window: deque[bool] = deque(maxlen=WINDOW)

    def finished(self, plan: Plan, age_ns: int, duration_ns: int) -> bool:
        """Note a chunk whose observation is age_ns old and whose frame took duration_ns. Returns whether `level`
        changed."""
        self.oldest_ns = age_ns + plan.interval_ns(duration_ns)
        late = 0 < self._max_age_ns < self.oldest_ns
        if self.level is OverloadLevel.HALTED:
            self._window.append(late)
            if len(self._window) == WINDOW and not any(self._window):  # all in time
                self.level = OverloadLevel.FALLBACK if self._has_fallback else OverloadLevel.FIRST
                self._window.clear()
            return self.level is not OverloadLevel.HALTED
        overrun = plan.mode != "par" and 0 < plan.frame_period_ms * 1e6 < duration_ns
        self.late, self.overruns = self.late + late, self.overruns + overrun
        may_fall_back = self.level is OverloadLevel.FIRST and self._has_fallback
        self._window.append(late or (overrun and may_fall_back))
        if sum(self._window) < STRIKES:
            return False
        self.level = OverloadLevel.FALLBACK if may_fall_back else OverloadLevel.HALTED
        self._window.clear()
        return True
