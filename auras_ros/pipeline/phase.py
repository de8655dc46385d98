"""Frames in phase with the camera: a grid whose ticks fall just before an image arrives.

Two mechanisms: a frame whose tick has come waits for the image that is due, as long as that costs no tick. And the grid
itself is moved a little at each frame, until its ticks lie just before the images: then the wait is as short as the
camera's jitter. This module never sleeps and has no thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from auras_ros.observation import Arrivals
from auras_ros.pipeline.frames import FrameClock

GAIN = 4  # a frame moves the grid by a quarter of its error ...
STEP = 50  # ... and by no more than a fiftieth of the shorter of the two periods


class PhaseLock:
    """clocks: first that of the worker that latches observations, then those of other workers (dec's generation), which
    are moved with it. Called at the boundary, by one thread at a time."""

    def __init__(self, arrivals: Arrivals, clocks: Sequence[FrameClock]) -> None:
        self._arrivals, self._clocks = arrivals, clocks
        self._nothing = False

    def wait_ns(self, now_ns: int) -> int:
        """How long a frame whose tick has come should still wait for the image that is due; 0: it starts."""
        clock = self._clocks[0]
        due = self._arrivals.due_ns(now_ns)
        if clock.tick_ns is None or due is None or self._arrivals.is_fresh(now_ns):
            return 0
        expected_ns, lost_ns = due
        latest_ns = clock.tick_ns + clock.spare_ns - self._most_ns()
        return max(0, min(lost_ns, latest_ns) - now_ns) if expected_ns <= latest_ns else 0

    def nothing(self) -> None:
        """Note that there was nothing to do at a tick."""
        self._nothing = True

    def started(self, tick_ns: int, now_ns: int) -> None:
        """Note that the frame of `tick_ns` has started at `now_ns`, and move the grid towards the images."""
        late_ns = now_ns - tick_ns
        if self._nothing and late_ns > self._clocks[0].spare_ns:
            self._move(late_ns)  # images came back after a loss: the grid restarts with them
        else:
            self._move(self._step_ns(tick_ns))
        self._nothing = False

    def _step_ns(self, tick_ns: int) -> int:
        newest_ns, period_ns = self._arrivals.newest_ns(), self._arrivals.period_ns
        if newest_ns is None or period_ns is None:
            return 0
        most_ns = self._most_ns()
        off_ns = newest_ns - self._arrivals.jitter_ns - tick_ns
        off_ns = (off_ns + period_ns // 2) % period_ns - period_ns // 2  # from the nearest image
        return max(-most_ns, min(most_ns, off_ns // GAIN))

    def _most_ns(self) -> int:
        """How far a frame may move the grid."""
        return min(self._arrivals.period_ns or 0, self._clocks[0].period_ns) // STEP

    def _move(self, by_ns: int) -> None:
        for clock in self._clocks:
            clock.move(by_ns)
