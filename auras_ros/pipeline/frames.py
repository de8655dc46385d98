"""When frames start (rule 1 of docs/pipeline.md): when the one before has ended, on a fixed grid or back to back."""

from __future__ import annotations

from collections import deque

KEPT = 16  # number of frame durations that are kept


class FrameClock:
    """Grid of `period_ns` from the first frame's start; 0 is free-running. It computes start times; it never sleeps.

    patient: if there was nothing to do at a tick, a frame may still start until the next tick (`phase`); otherwise it
    waits for the next tick.
    """

    def __init__(self, period_ns: int, *, patient: bool = False) -> None:
        if period_ns < 0:
            raise ValueError(f"period_ns must not be negative, got {period_ns}")
        self.period_ns, self._patient = period_ns, patient
        self._origin_ns: int | None = None
        self._tick = -1
        self._due_tick = 0
        self._idle = False
        self._began_ns, self._running = 0, False
        self._durations_ns: deque[int] = deque(maxlen=KEPT)
        self.skipped = 0

    def next_start_ns(self, now_ns: int) -> int:
        """When the next frame may start, given that nothing runs now. Calling it twice for one frame changes nothing.

        Ticks that passed during an overrun are counted in `skipped`; they are never made up.
        """
        if self.period_ns == 0 or self._origin_ns is None:
            return now_ns
        since_ns = now_ns - self._origin_ns
        is_open = self._patient and self._idle
        reached = since_ns // self.period_ns if is_open else -(-since_ns // self.period_ns)
        self._due_tick = max(self._tick + 1, reached)
        return self._origin_ns + self._due_tick * self.period_ns

    @property
    def tick_ns(self) -> int | None:
        """The tick that `next_start_ns` returned last; None before the first frame."""
        return None if self._origin_ns is None else self._origin_ns + self._due_tick * self.period_ns

    @property
    def spare_ns(self) -> int:
        """How late a frame may start without missing a tick, judged by the last frames' durations; 0 before the
        first."""
        return min((-lasted_ns % self.period_ns for lasted_ns in self._durations_ns), default=0)

    @property
    def longest_ns(self) -> int:
        """The longest of the last frames; 0 before the first."""
        return max(self._durations_ns, default=0)

    def earliest_ns(self) -> int:
        """No frame starts before this time: the next tick, or the end of the running frame if it is as short as the
        shortest of the last ones. 0 if neither is known."""
        ends_ns = self._began_ns + min(self._durations_ns) if self._running and self._durations_ns else 0
        tick_ns = 0 if self._origin_ns is None else self._origin_ns + (self._tick + 1) * self.period_ns
        return max(ends_ns, tick_ns)

    def started(self, at_ns: int) -> None:
        """Note that a frame starts, at the time of `next_start_ns` or later."""
        self._began_ns, self._running = at_ns, True
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

    def ended(self, at_ns: int) -> None:
        """Note that the running frame has ended."""
        self._durations_ns.append(at_ns - self._began_ns)
        self._running = False

    def idle(self) -> None:
        """No work was available at the last tick. Ticks until the next frame are idle, not missed."""
        if not self._idle:
            self.skipped += max(0, self._due_tick - self._tick - 1)
        self._idle = True

    def move(self, by_ns: int) -> None:
        """Move the whole grid: later if `by_ns` is positive, earlier if it is negative."""
        if self._origin_ns is not None:
            self._origin_ns += by_ns
