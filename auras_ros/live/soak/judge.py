"""What must hold whatever is broken: judged on the commands as they were sent, one after another.

It knows no ROS, reads no clock and breaks nothing: actions go in with their labels, violations come out. Times are ns
on the host's monotonic clock, as the actuator wrote them into its labels; how late this process heard is no matter.
What was not heard is not judged: a trajectory whose tick's action is missing is counted as `unjudged`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# How soon what is promised of a fault must come.
HOLD_MS = 150.0
SILENT_MS = 300.0  # the agent's, after the actuator's last word
NAMED_MS = 1000.0
ROUNDING = 1e-9
NAMED = 50  # violations kept with their text; all are counted
STAMP_NS = 1_000_000  # how well a stamp is known on the monotonic clock, on a busy machine
KEPT = 6000  # newest actions: a minute at 100 Hz


@dataclass(frozen=True)
class ReceivedAction:
    """One action: when, in which state, at which tick, the age of the observation that it answers, and by the request
    of which chunk."""

    mono_ns: int
    state: str
    tick: int
    age_ns: int | None
    values: NDArray[np.float64]
    request: int | None = None


@dataclass(frozen=True)
class ReceivedTrajectory:
    """One trajectory: the time of its tick, by its stamp, or at most late_ns too late; its points [rows, C], and when
    each is to be reached after that [rows], ns."""

    mono_ns: int
    points: NDArray[np.float64]
    after_ns: NDArray[np.int64]
    late_ns: int = 0


@dataclass(frozen=True)
class CommandLimits:
    """Per channel [C]: lowest and highest value, largest step of one tick (inf: none). max_age_ns: of an action.
    tick_ns: from one action to the next."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    step: NDArray[np.float64]
    max_age_ns: int
    tick_ns: int

    @classmethod
    def of(
        cls, channels: Sequence[tuple[float, float, float | None]], rate_hz: float, max_age_ms: float
    ) -> CommandLimits:
        """channels: (lower, upper, largest rate a second or None) each."""
        lower, upper = (np.array([channel[side] for channel in channels]) for side in (0, 1))
        step = np.array([np.inf if rate is None else rate / rate_hz for _, _, rate in channels])
        return cls(lower, upper, step, round(max_age_ms * 1e6), round(1e9 / rate_hz))


class Judge:
    """Tell it of every action and trajectory, and of every arming before and after asking for it."""

    def __init__(self, bounds: CommandLimits) -> None:
        self._bounds = bounds
        self.sent: deque[ReceivedAction] = deque(maxlen=KEPT)
        self.count = self.lost = self.unjudged = 0
        self.violations: list[str] = []
        self.during = ""  # which fault, and when; said with each violation
        self.kinds: Counter[str] = Counter()
        self._silent_ns: int | None = None  # the last word of a disarmed actuator
        self._arming = self._silenced = False
        self._armed_ns = 0
        self._held_from_ns: int | None = None  # from here on nobody may drive until somebody arms
        self._trajectories: deque[ReceivedTrajectory] = deque()  # to be judged once the actions beside them are here
        self._trajectory_ns = 0  # of the newest trajectory
        self._to_end_ns: int | None = None  # when the running trajectory had to be ended by a point
        self._lost_before_end = 0  # of the actions, at that time

    def violate(self, kind: str, text: str) -> None:
        """Count a broken promise; the first ones are kept in words."""
        self.kinds[kind] += 1
        if len(self.violations) < NAMED:
            self.violations.append(f"{kind}: {text}{f' ({self.during})' if self.during else ''}")

    def ask(self) -> None:
        """Arming is about to be asked for."""
        self._arming = True

    def answered(self, armed: bool, now_ns: int) -> None:
        """The answer has come."""
        self._arming = False
        if armed:
            self._armed_ns, self._held_from_ns = now_ns, None

    def forbid(self, from_ns: int) -> None:
        """Nobody may drive from then on until somebody arms."""
        self._held_from_ns = from_ns

    def silenced(self) -> None:
        """It disarmed without a last command: the ticks until the next one are not lost."""
        self._silenced = True

    def action(self, sent: ReceivedAction) -> None:
        before = self.sent[-1] if self.sent else None
        self._values(sent, before)
        self._right_to_speak(sent, before)
        if sent.age_ns is not None and sent.age_ns > self._bounds.max_age_ns:
            age_ms, limit_ms = sent.age_ns / 1e6, self._bounds.max_age_ns / 1e6
            self.violate("old action", f"tick {sent.tick} answers an observation of {age_ms:.1f} ms, > {limit_ms:g}")
        if before is not None and before.state != "disarmed" and not self._silenced:
            self.lost += max(0, sent.tick - before.tick - 1)
        self._silenced = False
        self.sent.append(sent)
        self.count += 1
        if before is not None and before.state == "armed" != sent.state and self._trajectory_ns:
            self._to_end_ns, self._lost_before_end = sent.mono_ns, self.lost
        while self._trajectories and self._trajectories[0].mono_ns < sent.mono_ns - HOLD_MS * 1e6:
            self._beside(self._trajectories.popleft())
        if self._to_end_ns is not None and self._to_end_ns < sent.mono_ns - 2 * HOLD_MS * 1e6:
            if self.lost == self._lost_before_end:
                self.violate("trajectory not ended", f"no point to stay at within {2 * HOLD_MS:g} ms of a hold")
            else:
                self.unjudged += 1
            self._to_end_ns = None

    def trajectory(self, sent: ReceivedTrajectory) -> None:
        """In the order of receipt: whoever sends them must not let one be overtaken by the next."""
        if sent.mono_ns < self._trajectory_ns:
            self.violate("trajectory overtaken", f"by {(self._trajectory_ns - sent.mono_ns) / 1e6:.1f} ms")
        self._trajectory_ns = sent.mono_ns
        self._trajectories.append(sent)

    def _beside(self, sent: ReceivedTrajectory) -> None:
        """It begins where the newest action was, no faster than the rate allows, and none of its points is too old. If
        that action was a hold, it is one point, and stays there."""
        bounds, points = self._bounds, sent.points
        slack_ns = bounds.tick_ns + sent.late_ns
        action = self._action_beside(sent)
        if action is None:
            self.unjudged += 1
            return
        rows, times_ns = np.vstack([action.values, points]), np.concatenate([[0], sent.after_ns])
        most = np.maximum(np.diff(times_ns), 1)[:, None] / bounds.tick_ns * bounds.step
        most[0] += slack_ns / bounds.tick_ns * bounds.step
        stays = len(points) == 1 and bool((points == action.values).all())
        if (np.diff(times_ns) <= 0).any() or not ((points >= bounds.lower) & (points <= bounds.upper)).all():
            self.violate("trajectory beyond limits", f"{points.tolist()} at {sent.after_ns.tolist()} ns")
        elif action.state != "armed" and not stays:
            self.violate("trajectory moves on", f"{len(points)} points while {action.state}, from {points[0].tolist()}")
        elif (np.abs(np.diff(rows, axis=0)) > most + ROUNDING).any():
            self.violate("trajectory beyond rate", f"from {action.values.tolist()} on: {points.tolist()}")
        elif len(points) > 1 and (action.age_ns or 0) + sent.after_ns[-1] > bounds.max_age_ns + slack_ns:
            self.violate("old trajectory", f"{len(points)} points after an observation of {action.age_ns} ns")
        if stays and self._to_end_ns is not None and sent.mono_ns > self._to_end_ns - bounds.tick_ns:
            self._to_end_ns = None

    def _action_beside(self, sent: ReceivedTrajectory) -> ReceivedAction | None:
        """The action of the trajectory's tick; None where that was not heard.

        A trajectory that may have been sent up to `late_ns` earlier than it seems can belong to the newest armed action
        of that time too."""
        before = [action for action in self.sent if action.mono_ns <= sent.mono_ns + STAMP_NS]
        if not before or before[-1].mono_ns < sent.mono_ns - sent.late_ns - self._bounds.tick_ns + STAMP_NS:
            return None
        armed = [action for action in before if action.state == "armed"]
        is_ended = len(sent.points) > 1 and before[-1].state != "armed"
        if is_ended and sent.late_ns and armed and armed[-1].mono_ns >= sent.mono_ns - sent.late_ns:
            return armed[-1]
        return before[-1]

    def _values(self, sent: ReceivedAction, before: ReceivedAction | None) -> None:
        """Finite, within its limits, and no further from the one before than the rate allows; a hold stays there."""
        bounds, values = self._bounds, sent.values
        if values.shape != bounds.lower.shape or not np.isfinite(values).all():
            self.violate("beyond limits", f"tick {sent.tick} has {values.tolist()}")
            return
        if ((values < bounds.lower) | (values > bounds.upper)).any():
            self.violate("beyond limits", f"tick {sent.tick} has {values.tolist()}")
        if before is None or sent.tick != before.tick + 1 or before.values.shape != values.shape:
            return
        if self._arming or before.mono_ns <= self._armed_ns:  # arming starts from the measured place
            return
        if (np.abs(values - before.values) > (bounds.step if sent.state == "armed" else 0.0) + ROUNDING).any():
            kind = "beyond rate" if sent.state == "armed" else "moved in a hold"
            self.violate(kind, f"tick {sent.tick} goes from {before.values.tolist()} to {values.tolist()}")

    def _right_to_speak(self, sent: ReceivedAction, before: ReceivedAction | None) -> None:
        latched = before is not None and before.state == "stopped" and self._armed_ns < before.mono_ns
        if latched and sent.state in ("armed", "holding") and not self._arming:
            self.violate("not latched", f"tick {sent.tick} is {sent.state} after a stop, and nobody has armed")
        silent_ns = self._silent_ns
        if silent_ns is not None and silent_ns < sent.mono_ns and self._armed_ns < silent_ns and not self._arming:
            self.violate("action while disarmed", f"tick {sent.tick}, state {sent.state}")
        self._silent_ns = sent.mono_ns if sent.state == "disarmed" else None
        from_ns = self._held_from_ns
        if from_ns is not None and sent.state == "armed" and sent.mono_ns > from_ns and not self._arming:
            self.violate("driven unasked", f"tick {sent.tick} moves before anybody armed again")
