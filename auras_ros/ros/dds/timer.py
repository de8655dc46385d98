"""Timers on any clock; missed ticks are skipped, not called later.

A timer only knows when it is due; the executor calls it.
"""

from __future__ import annotations

from collections.abc import Callable

from .clock import Clock, ClockType, Duration, JumpThreshold, TimeJump


class Timer:
    """Calls `callback` every `period_ns` of `clock`; first one period after its creation."""

    def __init__(self, callback: Callable[[], object], period_ns: int, clock: Clock) -> None:
        if period_ns < 0:
            raise ValueError(f"timer period {period_ns} ns is negative")
        self.callback, self.timer_period_ns, self.clock = callback, period_ns, clock
        self._canceled = self.closed = False
        self._next_ns = clock.now_ns() + period_ns
        self._jumps = None
        if clock.clock_type == ClockType.ROS_TIME:
            threshold = JumpThreshold(None, Duration(nanoseconds=-1), on_clock_change=True)
            self._jumps = clock.create_jump_callback(threshold, post_callback=self._on_jump)

    def _on_jump(self, _: TimeJump) -> None:
        # After a jump back, or a change of the clock, the old schedule is meaningless.
        self.reset()

    def time_until_next_call(self) -> int | None:
        """Nanoseconds of its clock until it is due (negative if late), None if it is cancelled."""
        return None if self._canceled or self.closed else self._next_ns - self.clock.now_ns()

    def is_ready(self) -> bool:
        left_ns = self.time_until_next_call()
        return left_ns is not None and left_ns <= 0

    def advance(self) -> None:
        """Move to the next tick that is still ahead, on the original grid."""
        now_ns = self.clock.now_ns()
        self._next_ns += self.timer_period_ns
        if self._next_ns <= now_ns and self.timer_period_ns > 0:
            missed = 1 + (now_ns - self._next_ns) // self.timer_period_ns
            self._next_ns += missed * self.timer_period_ns

    def execute(self) -> None:
        """Call the callback if it is (still) due."""
        if self.is_ready():
            self.advance()
            self.callback()

    def cancel(self) -> None:
        self._canceled = True

    def reset(self) -> None:
        """Start again: not cancelled, due one period from now."""
        self._next_ns = self.clock.now_ns() + self.timer_period_ns
        self._canceled = False

    def close(self) -> None:
        self.closed = True
        if self._jumps is not None:
            self._jumps.unregister()
