"""When frames start (design rule 1): at the end of the one before, or on a fixed grid. Never two at once."""

from __future__ import annotations


class FrameClock:
    """Grid of `period_ns` from the first frame's start; 0 is free-running. It tells times and never sleeps."""

    def __init__(self, period_ns: int) -> None:
        if period_ns < 0:
            raise ValueError(f"period_ns must not be negative, got {period_ns}")
        self.period_ns = period_ns
        self._origin_ns: int | None = None
        self._tick = -1
        self._due_tick = 0
        self._idle = False
        self.skipped = 0

    def next_start_ns(self, now_ns: int) -> int:
        """When the next frame may start, given that nothing runs now. Asking twice for one frame changes nothing.

        Ticks that an overrun has swallowed are counted in `skipped`; they are never made up.
        """
        if self.period_ns == 0:
            return now_ns
        if self._origin_ns is None:
            return now_ns
        self._due_tick = max(self._tick + 1, -(-(now_ns - self._origin_ns) // self.period_ns))
        return self._origin_ns + self._due_tick * self.period_ns

    def started(self, at_ns: int) -> None:
        """A frame starts, at a time that `next_start_ns` gave or later."""
        if self.period_ns == 0:
            return
        if self._origin_ns is None:
            self._origin_ns, self._tick = at_ns, 0
        else:
            tick = (at_ns - self._origin_ns) // self.period_ns
            if not self._idle:
                self.skipped += max(0, tick - self._tick - 1)
            self._tick = max(self._tick + 1, tick)
        self._idle = False

    def idle(self) -> None:
        """There was nothing to do at the last `next_start_ns`: ticks from there to the next start are no overrun."""
        if not self._idle:
            self.skipped += max(0, self._due_tick - self._tick - 1)
        self._idle = True
