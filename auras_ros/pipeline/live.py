"""An executor in real time: one thread for each worker.

Frames run on a grid (`frames`, `phase`) or back to back (rule 1 of docs/pipeline.md). The caller supplies observations
and takes emissions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from auras_ros.clock import MonotonicClock
from auras_ros.device import checked, occupy
from auras_ros.device.reservation import FrameReservation
from auras_ros.observation import Arrivals
from auras_ros.pipeline.announcing import FrameAnnouncer
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.meter import FrameMeter
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.phase import PhaseLock
from auras_ros.pipeline.request import Emission, Latched, Worker


class Frame(NamedTuple):
    """A frame that is over; times on the executor's clock. number: None for perception of its own (dec), which counts
    none. ran_ns: its work was done; ended_ns: its boundary too. emission: None for a bubble."""

    worker: str
    number: int | None
    began_ns: int
    ran_ns: int
    ended_ns: int
    emission: Emission | None


Observer = Callable[[Frame], None]  # called in the worker's thread before the chunk is given out; it changes nothing
POLL_S = 0.02  # how long a worker waits for a notification before it checks again


class Live:
    """latch(now_ns) returns the newest observation, or None if there is none to use; emit takes a finished request.

    Both are called from the workers' threads. threads: intra-op threads of each worker. cores: dealt out to the workers
    in turn, as many to each as it has threads; None leaves that to the system. arrivals: arrival times of the images
    that `latch` returns; the frame grid is kept in phase with them. None leaves the grid where it began. observer: is
    told every frame. Raises DeviceError for more threads than cores.
    """

    def __init__(
        self,
        executor: Executor,
        latch: Callable[[int], Latched | None],
        emit: Callable[[Emission], None],
        cores: Sequence[int] | None = None,
        threads: int = 1,
        arrivals: Arrivals | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.executor = executor
        self._latch, self._emit, self._observer = latch, emit, observer
        _, self._threads_each = checked("workers", cores, threads)
        self._cores = list(cores) if cores else []
        self._clock = MonotonicClock()
        period_ns = 0 if executor.plan.mode == "par" else round(executor.plan.frame_period_ms * 1e6)
        keeps = arrivals if period_ns > 0 else None
        self.frame_clocks = {
            worker.name: FrameClock(period_ns, patient=keeps is not None) for worker in executor.workers
        }
        self._phase = None if keeps is None else PhaseLock(keeps, list(self.frame_clocks.values()))
        self.meter = FrameMeter(self.frame_clocks)
        self._announcers = {name: FrameAnnouncer(None, clock) for name, clock in self.frame_clocks.items()}
        self._news = threading.Condition()
        self._count = 0
        self._boundary = threading.Lock()  # a reset never comes between an observation and its admission
        self._running = False
        self._threads = [
            threading.Thread(target=self._loop, args=(i, worker), name=worker.name, daemon=True)
            for i, worker in enumerate(executor.workers)
        ]

    def announce_to(self, reservation: FrameReservation, max_age_ns: int = 0) -> None:
        """Announce the frames to other work on the same units; before `start`. max_age_ns: the actions' age limit,
        which says how late a frame may be; 0: none."""
        plan = self.executor.plan
        if plan.mode == "par" and not plan.together:
            max_age_ns = 0  # the chunk after a worker's last one is another worker's
        self._announcers = {
            name: FrameAnnouncer(reservation, clock, self.executor.frame_ns, max_age_ns)
            for name, clock in self.frame_clocks.items()
        }

    def start(self) -> None:
        self._running = True
        for thread in self._threads:
            thread.start()

    def working(self) -> bool:
        """Whether every worker's thread is alive."""
        return self._running and all(thread.is_alive() for thread in self._threads)

    def halt(self, timeout_s: float = 5.0) -> None:
        """Stop every worker after its frame."""
        self._running = False
        self.arrived()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout_s)

    def ended(self) -> bool:
        """Whether no worker's thread is alive any more."""
        return not any(thread.is_alive() for thread in self._threads)

    def arrived(self) -> None:
        """Notify waiting workers that there is something new."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    def earliest_ns(self) -> int:
        """No frame starts before this time, as far as is known."""
        return min(clock.earliest_ns() for clock in self.frame_clocks.values())

    def reset(self, forget: Callable[[], None]) -> None:
        """Start a new epoch; `forget` clears what the caller keeps. No frame of the new epoch sees earlier inputs."""
        with self._boundary:
            forget()
            self.executor.reset()
        self.arrived()

    def _loop(self, number: int, worker: Worker) -> None:
        try:
            occupy(worker.name, self._cores_of(number), self._threads_each)
            frames, announcer = self.frame_clocks[worker.name], self._announcers[worker.name]
            while self._running:
                count = self._count
                start_ns = frames.next_start_ns(self._clock.now_ns())
                announcer.next(start_ns)
                if not self._sleep_until(start_ns):
                    continue
                announcer.enter()
                began = self._begin(worker, frames)
                if began is None:
                    frames.idle()
                    self._wait(count)
                    continue
                self.meter.began(worker.name, self._clock.now_ns())
                worker.run()
                ran_ns = self._clock.now_ns()
                emission = worker.end(ran_ns)
                announcer.emitted(emission)
                if self._observer is not None:
                    self._observer(Frame(worker.name, *began, ran_ns, self._clock.now_ns(), emission))
                self.arrived()  # other workers may have a new context, or may be admitted now
                for each in () if emission is None else emission.every:
                    self._emit(each)
                ended_ns = self._clock.now_ns()
                self.meter.ended(worker.name, ended_ns)
                frames.ended(ended_ns)
        except BaseException:
            self._running = False  # one worker's failure stops all of them
            raise
        finally:
            self._announcers[worker.name].lift()

    def _cores_of(self, number: int) -> frozenset[int] | None:
        first = number * self._threads_each
        chosen = [self._cores[(first + k) % len(self._cores)] for k in range(self._threads_each) if self._cores]
        return frozenset(chosen) or None

    def _begin(self, worker: Worker, frames: FrameClock) -> tuple[int | None, int] | None:
        """Begin a frame: its number (None for perception of its own) and its time. None if there is nothing to do."""
        ledger = self.executor.ledger
        with self._boundary:
            now_ns = self._clock.now_ns()
            phase = self._phase if worker is self.executor.workers[0] else None  # only the first one latches
            if phase is not None and (wait_ns := phase.wait_ns(now_ns)) > 0:
                self._announcers[worker.name].waits(now_ns, wait_ns)
                return None
            seen = self._latch(now_ns)
            if not worker.wants(seen, now_ns):
                self._announcers[worker.name].lift()
                if phase is not None:
                    phase.nothing()
                return None
            tick_ns, number = frames.tick_ns, ledger.frames
            frames.started(now_ns)
            if phase is not None and tick_ns is not None:
                phase.started(tick_ns, now_ns)
            worker.begin(seen, now_ns)
            return number if ledger.frames > number else None, now_ns

    def _sleep_until(self, at_ns: int) -> bool:
        """Returns False if the worker was stopped meanwhile."""
        while self._running and (left_ns := at_ns - self._clock.now_ns()) > 0:
            with self._news:
                self._news.wait(min(left_ns / 1e9, POLL_S))
        return self._running

    def _wait(self, count: int) -> None:
        """Wait until something new has come since `count`, a request may be admitted, or it is time to check again."""
        now_ns = self._clock.now_ns()
        left_ns = [self.executor.ledger.wait_ns(now_ns), self._phase.wait_ns(now_ns) if self._phase else 0]
        left_s = min((each / 1e9 for each in left_ns if each > 0), default=POLL_S)
        with self._news:
            if self._count == count:
                self._news.wait(min(left_s, POLL_S))
