"""One worker's frames, announced to whoever runs other work on the same units (`device.reservation`).

A frame has to start at its tick. Where actions have an age limit it may start later, as long as it still ends before
the next tick, and before the actions of the chunk that is executed get too old. On a patient grid (`phase`) a frame
whose image comes after its tick has passed without one is not announced: it waits for a forward that runs.
"""

from __future__ import annotations

from auras_ros.device.reservation import FrameReservation
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission


class FrameAnnouncer:
    """Called in the worker's thread; without a reservation every method does nothing.

    frame_ns: a frame's duration as long as none has been measured. max_age_ns: age limit of actions
    (`Plan.oldest_ns`); 0: none.
    """

    def __init__(
        self, reservation: FrameReservation | None, frames: FrameClock, frame_ns: int = 0, max_age_ns: int = 0
    ) -> None:
        self._slot = None if reservation is None else reservation.slot()
        self._frames, self._frame_ns, self._max_age_ns = frames, frame_ns, max_age_ns
        self._origin_ns: int | None = None

    def next(self, begin_ns: int) -> None:
        """The frame that ran is over, and the next one begins at begin_ns."""
        if self._slot is not None:
            self._slot.announce(begin_ns, self._duration_ns(), self._latest_ns(begin_ns))

    def enter(self) -> None:
        """A frame is due. Returns when other work has ended."""
        if self._slot is not None:
            self._slot.enter()

    def waits(self, now_ns: int, wait_ns: int) -> None:
        """The frame waits at most so long for an image, which may come at any time."""
        if self._slot is not None:
            self._slot.announce(now_ns, wait_ns + self._duration_ns())

    def lift(self) -> None:
        """It is not known when the next frame begins: there is nothing to do, or the worker has ended."""
        if self._slot is not None:
            self._slot.lift()

    def emitted(self, emission: Emission | None) -> None:
        """Note whose actions are executed next."""
        if emission is not None:
            self._origin_ns = emission.origin.mono_ns

    def _duration_ns(self) -> int:
        return self._frames.longest_ns or self._frame_ns

    def _latest_ns(self, begin_ns: int) -> int | None:
        """When the frame must have ended."""
        if self._max_age_ns == 0 or self._origin_ns is None:
            return None
        too_old_ns = self._origin_ns + self._max_age_ns
        return min(too_old_ns, begin_ns + self._frames.period_ns) if self._frames.period_ns else too_old_ns


def longest_gap_ns(plan: Plan, duration_ns: int, max_age_ns: int = 0) -> int:
    """The longest forward that the plan's frames, if they last duration_ns, ever leave time for; max_age_ns as above.
    Back to back they leave what the age limit leaves. None in `par`: its requests are on no grid."""
    if plan.mode == "par":
        return 0
    later_ns = max(0, max_age_ns - plan.oldest_ns(duration_ns))
    if plan.frame_period_ms == 0:
        return later_ns
    gap_ns = max(0, round(plan.frame_period_ms * 1e6) - duration_ns)
    return gap_ns + min(gap_ns, later_ns)
