"""One CUDA stream: it replays the graphs that were captured for it, and records when each replay was over.

The host only puts work in order and goes on; the GPU waits for events. A lane reuses a ring of events, so a frame
makes none. A stage that cannot be captured is run on the stream by the launching thread, operation by operation: its
allocations belong to the stream, so the order on the stream keeps its memory safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from auras_ros.device.cuda_time import Anchor, HostScale
from auras_ros.device.failure import Failure, StageFailures
from auras_ros.device.lane import DeviceError, Lane, Mark, Stage
from auras_ros.device.spans import Spans

if TYPE_CHECKING:
    import torch

DEPTH = 64  # launches whose events a lane keeps; one more waits for the oldest


class CudaStage:
    """A captured graph, bound to the lane on whose stream (and so in whose partition and pool) it was captured; or a
    body that is run instead. `play` puts it on the current stream."""

    __slots__ = ("captured", "lane", "name", "play")

    def __init__(self, name: str, play: Callable[[], None], lane: Lane, captured: bool = True) -> None:
        self.name, self.play, self.lane, self.captured = name, play, lane, captured


class Slot:
    """The events around one launch. `number` is the launch that uses them now, or -1. A thread that waits for the end
    sleeps (`blocking`): by default CUDA spins, which takes a core for each waiting thread."""

    __slots__ = ("anchor", "begin", "device", "end", "number", "open", "stage")

    def __init__(self, timed: bool, device: torch.device) -> None:
        import torch

        self.device = device
        self.begin = torch.cuda.Event(enable_timing=True) if timed else None
        self.end = torch.cuda.Event(enable_timing=timed, blocking=True)
        self.number = -1
        self.open = False  # launched, and the span is not yet written
        self.stage = ""
        self.anchor: Anchor | None = None


class CudaMark:
    """The completion of launch `number`. A slot is reused only once its launch is over, so an old mark is done.
    failure: what an uncaptured stage raised while it was put on the stream; a replay cannot raise."""

    __slots__ = ("_failures", "failure", "number", "slot")

    def __init__(self, slot: Slot, failures: StageFailures, failure: Failure | None) -> None:
        self.slot, self.number = slot, slot.number
        self._failures, self.failure = failures, failure

    def wait(self) -> None:
        if self.slot.number == self.number:
            self.slot.end.synchronize()
        if self.failure is not None:
            self._failures.raise_again(self.failure)

    def follow(self) -> None:
        import torch

        if self.slot.number == self.number:
            torch.cuda.current_stream(self.slot.device).wait_event(self.slot.end)
        if self.failure is not None:
            self._failures.raise_again(self.failure)

    def done(self) -> bool:
        return self.slot.number != self.number or bool(self.slot.end.query())


class CudaLane:
    """See the module's docstring. scale: given if spans are recorded. uncaptured: why its stages are not captured;
    empty if they are."""

    def __init__(
        self,
        name: str,
        stream: torch.cuda.Stream,
        failures: StageFailures,
        spans: Spans | None,
        scale: HostScale | None,
        uncaptured: str = "",
    ) -> None:
        import torch

        self.name, self.stream, self._failures = name, stream, failures
        self.uncaptured = uncaptured
        self._cuda = torch.cuda
        self._spans, self._scale = spans, scale
        self._slots = [Slot(scale is not None, stream.device) for _ in range(DEPTH)]
        self._caller = torch.cuda.Event()
        self._launched = 0
        self._lock = threading.Lock()
        self._closed = False
        self.renew_pool()

    def renew_pool(self) -> None:
        """Give later captures a new memory pool."""
        self.pool = self._cuda.graph_pool_handle()

    def launch(self, stage: Stage, after: Sequence[Mark] = ()) -> Mark:
        if not isinstance(stage, CudaStage) or stage.lane is not self:
            raise DeviceError(f"stage {stage.name!r} was not captured for lane {self.name!r}")
        with self._lock:
            if self._closed:
                raise DeviceError(f"stage {stage.name!r}: lane {self.name!r} is closed")
            slot = self._slots[self._launched % DEPTH]
            self._retire(slot, wait=True)
            failed = self._come_after(after)
            slot.anchor = None if self._scale is None else self._scale.anchor()
            with self._cuda.stream(self.stream):
                if slot.begin is not None:
                    slot.begin.record(self.stream)
                failure = self._play(stage) if failed is None else self._failures.note(stage.name, failed.error)
                slot.end.record(self.stream)
            slot.stage, slot.number, slot.open = stage.name, self._launched, True
            self._launched += 1
            return CudaMark(slot, self._failures, failure)

    def collect(self, wait: bool) -> None:
        """Write the spans of launches that are over, oldest first; with `wait`, of all launches."""
        with self._lock:
            for back in range(DEPTH):
                self._retire(self._slots[(self._launched + back) % DEPTH], wait)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.collect(wait=True)

    def _play(self, stage: CudaStage) -> Failure | None:
        if stage.captured:
            stage.play()
            return None
        try:
            stage.play()
        except Exception as error:  # noqa: BLE001  (raised again where the mark is waited for)
            return self._failures.note(stage.name, error)
        return None

    def _come_after(self, after: Sequence[Mark]) -> Failure | None:
        """Make the stream wait for the marks, and for what the calling thread has put on its own stream so far: inputs
        are copied there, and torch's streams do not wait for one another by themselves. Returns the first failure among
        the marks: after a failure the stage does not run."""
        current = self._cuda.current_stream(self.stream.device)
        if current != self.stream:
            self._caller.record(current)
            self.stream.wait_event(self._caller)
        for mark in after:
            if not isinstance(mark, CudaMark):
                raise DeviceError(f"lane {self.name!r}: a CUDA launch cannot come after a {type(mark).__name__}")
            if mark.slot.number == mark.number:
                self.stream.wait_event(mark.slot.end)
        return next((mark.failure for mark in after if isinstance(mark, CudaMark) and mark.failure is not None), None)

    def _retire(self, slot: Slot, wait: bool) -> None:
        """Write the slot's span if its launch is over; with `wait`, wait for that. Called under the lock."""
        if not slot.open or not (wait or slot.end.query()):
            return
        slot.end.synchronize()
        slot.open = False
        if self._spans is not None and slot.anchor is not None and slot.begin is not None:
            self._spans.add(self.name, slot.stage, *slot.anchor.span_ns(slot.begin, slot.end))
