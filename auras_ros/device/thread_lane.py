"""A lane with a thread: it runs what is launched on it, in order, on its own cores, beside the other lanes.

The thread sleeps while there is nothing to do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from auras_ros.device.cores import occupy, starting
from auras_ros.device.failure import Failure, StageFailures
from auras_ros.device.lane import DeviceError, Mark, Stage
from auras_ros.device.plain import PlainStage, plain

DEPTH = 64  # launches that a lane holds; one more waits for the oldest


class ThreadMark:
    """The completion of one launch on a thread lane.

    Marks are not reused: a mark that belonged to a later launch once its own is over could make two lanes wait for each
    other.
    """

    __slots__ = ("_failure", "_lane", "_over", "after", "stage")

    def __init__(self, lane: ThreadLane, stage: PlainStage, after: tuple[Mark, ...]) -> None:
        self._lane = lane
        self.stage, self.after = stage, after
        self._over = False
        self._failure: Failure | None = None

    def wait(self) -> None:
        lane = self._lane
        with lane.lock:
            while not self._over:
                lane.ended.wait()
        if self._failure is not None:
            lane.failures.raise_again(self._failure)

    follow = wait

    def done(self) -> bool:
        return self._over

    def settle(self, failure: Failure | None) -> None:
        """Called under the lane's lock. Drops the marks in `after`, which would chain back to the first launch."""
        self._failure, self._over, self.after = failure, True, ()


class ThreadLane:
    """See the module's docstring. threads: intra-op threads. cores: None keeps those of the thread that makes it."""

    def __init__(self, name: str, cores: frozenset[int] | None, threads: int, failures: StageFailures) -> None:
        self.name = name
        self.failures = failures
        self.lock = threading.Lock()
        self.ended = threading.Condition(self.lock)
        self._came = threading.Condition(self.lock)
        self._queue: deque[ThreadMark] = deque()  # the first one runs
        self._closing = False
        self._start(cores, threads)

    def launch(self, stage: Stage, after: Sequence[Mark] = ()) -> Mark:
        mark = ThreadMark(self, plain(stage, self), tuple(after))
        if threading.current_thread() is self._thread:
            raise DeviceError(f"stage {stage.name!r}: launched from inside a stage of its own lane {self.name!r}")
        with self.lock:
            while len(self._queue) == DEPTH and not self._closing:
                self.ended.wait()
            if self._closing:
                raise DeviceError(f"stage {stage.name!r}: lane {self.name!r} is closed")
            self._queue.append(mark)
            self._came.notify()
        return mark

    def close(self) -> None:
        """Run what was launched, then end the thread."""
        with self.lock:
            self._closing = True
            self._came.notify()
            self.ended.notify_all()
        self._thread.join()

    def _start(self, cores: frozenset[int] | None, threads: int) -> None:
        ready = threading.Event()
        refused: list[BaseException] = []

        def begin() -> None:
            try:
                occupy(self.name, cores, threads)
            except BaseException as error:  # noqa: BLE001  (raised below, in the thread that makes the lane)
                refused.append(error)
            ready.set()
            if not refused:
                self._work()

        with starting():
            self._thread = threading.Thread(target=begin, name=f"lane {self.name}", daemon=True)
            self._thread.start()
            ready.wait()
        if refused:
            self._thread.join()
            raise refused[0]

    def _work(self) -> None:
        while (mark := self._next()) is not None:
            failure = self._run(mark)
            with self.lock:
                mark.settle(failure)
                self._queue.popleft()
                self.ended.notify_all()

    def _next(self) -> ThreadMark | None:
        """The oldest launch; waits for one. None once the lane is closing and empty."""
        with self.lock:
            while not self._queue:
                if self._closing:
                    return None
                self._came.wait()
            return self._queue[0]

    def _run(self, mark: ThreadMark) -> Failure | None:
        stage = mark.stage
        try:
            for earlier in mark.after:
                earlier.wait()
            stage.run()
        except BaseException as error:  # noqa: BLE001  (raised again where the mark is waited for)
            return self.failures.note(stage.name, error)
        return None
