"""Lanes on the CPU: inline in the caller's thread, or with a thread of their own. Stages are plain calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from auras_ros.device.base import LanedDevice
from auras_ros.device.cores import checked
from auras_ros.device.failure import Failure, StageFailures
from auras_ros.device.lane import DeviceError, Lane, Mark, Stage
from auras_ros.device.plain import PlainStage, plain
from auras_ros.device.spans import Spans
from auras_ros.device.thread_lane import ThreadLane


class OverMark:
    """The completion of an inline launch, which is over when `launch` returns."""

    __slots__ = ("_failure", "_failures")

    def __init__(self, failures: StageFailures, failure: Failure | None = None) -> None:
        self._failures, self._failure = failures, failure

    def wait(self) -> None:
        if self._failure is not None:
            self._failures.raise_again(self._failure)

    follow = wait

    def done(self) -> bool:
        return True


class InlineLane:
    """Runs a stage in the thread that launches it, before `launch` returns. Its exception is raised by the mark."""

    def __init__(self, name: str, failures: StageFailures) -> None:
        self.name = name
        self._failures = failures
        self._well = OverMark(failures)  # one shared mark for every successful launch
        self._lock = threading.Lock()
        self._runs_in: int | None = None
        self._closed = False

    def launch(self, stage: Stage, after: Sequence[Mark] = ()) -> Mark:
        own = plain(stage, self)
        if self._runs_in == threading.get_ident():
            raise DeviceError(f"stage {stage.name!r}: launched from inside a stage of its own lane {self.name!r}")
        with self._lock:
            if self._closed:
                raise DeviceError(f"stage {stage.name!r}: lane {self.name!r} is closed")
            self._runs_in = threading.get_ident()
            try:
                for earlier in after:
                    earlier.wait()
                own.run()
            except Exception as error:  # noqa: BLE001  (raised again where the mark is waited for)
                return OverMark(self._failures, self._failures.note(own.name, error))
            finally:
                self._runs_in = None
        return self._well

    def close(self) -> None:
        with self._lock:
            self._closed = True


class CpuDevice(LanedDevice[InlineLane | ThreadLane]):
    """The host's cores.

    A lane without `cores` and `threads` is inline. With either it has a thread of its own: without `cores` on those of
    the thread that makes it, without `threads` with one intra-op thread.
    """

    def __init__(self, spans: Spans | None = None) -> None:
        import torch

        super().__init__(torch.device("cpu"), spans)

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        self._refuse_if_closed(name)
        if cores is None and threads is None:
            self._lanes.append(InlineLane(name, self._failures))
        else:
            self._lanes.append(ThreadLane(name, *checked(name, cores, threads), self._failures))
        return self._lanes[-1]

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        return PlainStage(name, body, self._own(name, lane), self.uncaptured, self._spans)
