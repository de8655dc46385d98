"""The policy's frames as a reservation: other work on the same units runs in the gaps between them.

Who runs the frames announces the next one of each of its threads; who has other work (the stages of a vision-language
model) asks before each forward. A forward cannot be interrupted, so it starts only if it would end before a frame has
to start. This module knows no plan and no request; it never starts or stops anything itself.

Nothing waits for ever:
- Work waits for no frame that is not announced (`lift`), nor for one that has not come by the end of its time.
- A frame waits for work that runs, at most until its latest start, or until the stated end of work that began before
  the frame was announced. Work that outlasts what it stated is not waited for; `outlasted` counts such frames.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from auras_ros.clock import MonotonicClock, SchedulerClock
from auras_ros.device.lane import DeviceError


class FrameReservation:
    """Shared by the threads that run frames and those that have other work. Times are ns of `clock`."""

    def __init__(self, clock: SchedulerClock | None = None) -> None:
        self.clock = clock or MonotonicClock()
        self.changed = threading.Condition()
        self.slots: set[FrameSlot] = set()  # without those that have lifted theirs
        self.running: set[FillingWork] = set()
        self._listeners: list[Callable[[], None]] = []
        self.outlasted = 0

    def slot(self) -> FrameSlot:
        """For one thread that runs frames, one at a time. Nothing is announced yet."""
        return FrameSlot(self)

    # Who fills the gaps.

    def listen(self, told: Callable[[], None]) -> None:
        """Call `told` whenever more may fit than before. It is called in the frames' threads and must return at
        once."""
        self._listeners.append(told)

    def fits(self, now_ns: int, duration_ns: int) -> bool:
        """Whether work of at most this length may start now: no frame runs or is due, and none has to start before
        the work would end."""
        with self.changed:
            return self._fits(now_ns, duration_ns)

    def start(self, duration_ns: int) -> FillingWork | None:
        """Begin work of at most this length, if it still fits; None if it does not. The caller must `end` it."""
        with self.changed:
            now_ns = self.clock.now_ns()
            if not self._fits(now_ns, duration_ns):
                return None
            work = FillingWork(self, now_ns + duration_ns)
            self.running.add(work)
            return work

    def free_at_ns(self) -> int | None:
        """When an announced frame that has not come will be given up, so that more fits. None: only an event makes
        more fit, and `listen` tells of it."""
        with self.changed:
            now_ns = self.clock.now_ns()
            if any(slot.due for slot in self.slots):
                return None
            return min((slot.ends_ns for slot in self.slots if slot.ends_ns > now_ns), default=None)

    def _fits(self, now_ns: int, duration_ns: int) -> bool:
        return all(
            not slot.due and (now_ns + duration_ns <= slot.starts_ns or now_ns >= slot.ends_ns) for slot in self.slots
        )

    def tell(self) -> None:
        for told in self._listeners:
            told()


class FrameSlot:
    """The frames of one thread, one after another: `announce`, `enter`, and with the next `announce` or `lift` the
    frame is over. The same thread calls all of them.

    due: a frame runs, or waits for work to end. starts_ns, ends_ns: the latest times of the announced frame.
    """

    def __init__(self, reservation: FrameReservation) -> None:
        self._of = reservation
        self.due, self.starts_ns, self.ends_ns = False, 0, 0

    def announce(self, begin_ns: int, duration_ns: int, latest_ns: int | None = None) -> None:
        """The next frame starts at begin_ns at the earliest and takes duration_ns at most (a high percentile of
        measured ones). latest_ns: when it must have ended; without it, it has to start at begin_ns. A frame that is
        announced to end too late anyway has to start at begin_ns too."""
        latest_start_ns = begin_ns if latest_ns is None else max(begin_ns, latest_ns - duration_ns)
        with self._of.changed:
            self.due, self.starts_ns, self.ends_ns = False, latest_start_ns, latest_start_ns + duration_ns
            self._of.slots.add(self)
        self._of.tell()

    def lift(self) -> None:
        """No next frame is known: work of any length may run. The first frame afterwards may have to wait for it."""
        with self._of.changed:
            self.due, self.starts_ns, self.ends_ns = False, 0, 0
            self._of.slots.discard(self)
        self._of.tell()

    def enter(self) -> None:
        """The frame is due: no work starts from now on. Returns when it may run (see the module's docstring)."""
        with self._of.changed:
            while (wait_ns := self.wait_ns()) > 0:
                self._of.changed.wait(wait_ns / 1e9)

    def wait_ns(self) -> int:
        """`enter` without waiting: how long the due frame still waits for work that runs; 0: it begins."""
        with self._of.changed:
            self.due = True
            self._of.slots.add(self)
            if not self._of.running:
                return 0
            until_ns = max(self.starts_ns, *(work.ends_ns for work in self._of.running))
            wait_ns = max(0, until_ns - self._of.clock.now_ns())
            self._of.outlasted += wait_ns == 0
            return wait_ns


class FillingWork:
    """Work that runs between frames. ends_ns: when it ends at the latest, as it was stated."""

    def __init__(self, reservation: FrameReservation, ends_ns: int) -> None:
        self._of, self.ends_ns = reservation, ends_ns

    def end(self) -> None:
        """It has ended. Any thread may call it; a second call does nothing."""
        with self._of.changed:
            self._of.running.discard(self)
            self._of.changed.notify_all()


def check_gap(gap_ns: int, forwards_ns: Mapping[str, int]) -> None:
    """Refuse work that no gap takes. forwards_ns: the shortest forward of each stage that cannot be divided. Raises
    DeviceError, naming the stage."""
    for stage, forward_ns in forwards_ns.items():
        if forward_ns > gap_ns:
            raise DeviceError(
                f"reservation: gap of {gap_ns / 1e6:.1f} ms is shorter than a {stage} forward of {forward_ns / 1e6:.1f}"
                " ms: it would never run; use a longer frame period, or units of its own for the model"
            )
