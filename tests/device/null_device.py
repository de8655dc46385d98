"""A device whose lanes run in virtual time: schedules are computed instead of run in real time.

A stage's body runs at once, in the order of the launches; its duration is read from a table: by its name, or first by
its partition and its name. Nothing here starts a thread, and time passes only in `wait`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from auras_ros.clock import VirtualClock
from auras_ros.device.base import LanedDevice
from auras_ros.device.failure import Failure, StageFailures
from auras_ros.device.lane import DeviceError, Lane, Mark, Stage
from auras_ros.device.partition import DevicePartition, PreparedPartitions, TwoParts
from auras_ros.device.plain import PlainStage, plain
from auras_ros.device.spans import Spans

Durations = Mapping[Any, int]  # by stage, or by (partition's name, stage)


class NullMark:
    """The completion of one launch, at `ends_ns` of virtual time. `wait` moves the clock there."""

    __slots__ = ("_clock", "_failures", "ends_ns", "failure")

    def __init__(self, clock: VirtualClock, failures: StageFailures, ends_ns: int, failure: Failure | None) -> None:
        self._clock, self._failures = clock, failures
        self.ends_ns, self.failure = ends_ns, failure

    def wait(self) -> None:
        self._clock.sleep_until_ns(self.ends_ns)
        if self.failure is not None:
            self._failures.raise_again(self.failure)

    follow = wait

    def done(self) -> bool:
        return self._clock.now_ns() >= self.ends_ns


class NullLane:
    """Busy until `free_ns`. A launch starts then, at the end of its `after` marks, or now, whichever is latest."""

    def __init__(self, name: str, device: NullDevice, partition: str) -> None:
        self.name, self.partition = name, partition
        self.free_ns = 0
        self._device = device

    def launch(self, stage: Stage, after: Sequence[Mark] = ()) -> Mark:
        own, device = plain(stage, self), self._device
        device.own(own.name, self)
        earlier = [_of_null(mark, self.name) for mark in after]
        start_ns = max([self.free_ns, device.clock.now_ns(), *(mark.ends_ns for mark in earlier)])
        failed = next((mark.failure for mark in earlier if mark.failure is not None), None)
        if failed is not None:  # the stage does not run and takes no time
            failure: Failure | None = device.failures.note(own.name, failed.error)
            self.free_ns = start_ns
        else:
            self.free_ns = start_ns + device.duration_ns(own.name, self.partition)
            failure = self._run(own)
            if device.spans is not None:
                device.spans.add(self.name, own.name, start_ns, self.free_ns)
        return NullMark(device.clock, device.failures, self.free_ns, failure)

    def close(self) -> None:
        """Nothing is under way: launches ran at once."""

    def _run(self, stage: PlainStage) -> Failure | None:
        try:
            stage.run()
        except Exception as error:  # noqa: BLE001  (raised again where the mark is waited for)
            return self._device.failures.note(stage.name, error)
        return None


class NullDevice(LanedDevice[NullLane]):
    """durations_ns: every stage's duration. It is read at each launch, so a test may change it."""

    def __init__(self, clock: VirtualClock, durations_ns: Durations, spans: Spans | None = None) -> None:
        import torch

        super().__init__(torch.device("cpu"), spans)
        self.clock, self.spans, self.failures, self.own = clock, spans, self._failures, self._own
        self._durations_ns = durations_ns

    def lane(
        self, name: str, cores: Sequence[int] | None = None, threads: int | None = None, partition: str = ""
    ) -> Lane:
        """`cores` and `threads` are ignored: durations come from the table."""
        self._refuse_if_closed(name)
        self._lanes.append(NullLane(name, self, partition))
        return self._lanes[-1]

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        own = self._own(name, lane)
        self.duration_ns(name, own.partition)
        return PlainStage(name, body, own, self.uncaptured)

    def duration_ns(self, stage: str, partition: str = "") -> int:
        """Raises DeviceError, naming the stage, if its duration is missing or negative."""
        duration_ns = self._durations_ns.get((partition, stage)) if partition else None
        if duration_ns is None:
            duration_ns = self._durations_ns.get(stage)
        if duration_ns is None or duration_ns < 0:
            raise DeviceError(f"stage {stage!r}: its duration must be given and not negative, got {duration_ns}")
        return duration_ns


def _of_null(mark: Mark, lane: str) -> NullMark:
    if not isinstance(mark, NullMark):
        raise DeviceError(f"lane {lane!r}: a launch in virtual time cannot come after a {type(mark).__name__}")
    return mark


class NullPartitions(PreparedPartitions):
    """Parts are called `first 3 of 8` and `second 5 of 8`, all units `8`. Their executors run in the caller's thread,
    before `submit` returns."""

    def __init__(self, device: NullDevice, units: int, sizes: Sequence[int]) -> None:
        def part(name: str, count: int) -> DevicePartition:
            return DevicePartition(
                name, count, lambda _: InlineExecutor(), lambda _, lane: device.lane(lane, partition=name)
            )

        def split(size: int) -> TwoParts:
            return TwoParts(
                part(f"first {size} of {units}", size), part(f"second {units - size} of {units}", units - size)
            )

        super().__init__(part(str(units), units), {size: split(size) for size in sizes})


class InlineExecutor(Executor):
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  (raised again by whoever reads the result)
            future.set_exception(error)
        return future
