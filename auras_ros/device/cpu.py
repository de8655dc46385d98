"""Lanes on the CPU: inline in the caller's thread, or with a thread of their own. Stages are plain calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from auras_ros.device.cores import checked
from auras_ros.device.failure import Failure, StageFailures
from auras_ros.device.lane import DeviceError, Lane, Mark, Stage, own_lane, refuse_if_closed
from auras_ros.device.plain import PlainStage, plain
from auras_ros.device.spans import Spans
from auras_ros.device.thread_lane import ThreadLane
from auras_ros.device.uncaptured import Reasons

if TYPE_CHECKING:
    import torch


class OverMark:
    """The completion of an inline launch, which is over when `launch` returns."""

    __slots__ = ("_failure", "_failures")

    def __init__(self, failures: StageFailures, failure: Failure | None = None) -> None:
        self._failures, self._failure = failures, failure

    def wait(self) -> None:
        if self._failure is not None:
            self._failures.raise_again(self._failure)

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


class CpuDevice:
    """The host's cores. With `spans` every run of a stage adds one.

    A lane without `cores` and `threads` is inline. With either it has a thread of its own: without `cores` on those of
    the thread that makes it, without `threads` with one intra-op thread.
    """

    def __init__(self, spans: Spans | None = None) -> None:
        import torch

        self._tensors = torch.device("cpu")
        self._spans, self._failures = spans, StageFailures()
        self._lanes: list[InlineLane | ThreadLane] = []
        self.uncaptured: dict[str, Reasons] = {}
        self._closed = False

    @property
    def tensors(self) -> torch.device:
        return self._tensors

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        refuse_if_closed(name, self._closed)
        made: InlineLane | ThreadLane
        if cores is None and threads is None:
            made = InlineLane(name, self._failures)
        else:
            made = ThreadLane(name, *checked(name, cores, threads), self._failures)
        self._lanes.append(made)
        return made

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        return PlainStage(name, body, own_lane(name, lane, self._lanes), self.uncaptured, self._spans)

    def close(self) -> None:
        """End the lanes' threads once they have run what was launched; a second call does nothing."""
        lanes, self._lanes, self._closed = self._lanes, [], True
        for lane in lanes:
            lane.close()
        self._failures.raise_unseen()
