"""What an executor did, as a Chrome trace: stages on lanes, frames, and requests in flight.

A recording notes frames, admissions and emissions beside the device's spans; it changes no result. The format is the
Trace Event Format of Chrome's tracing, which Perfetto reads. This module draws no picture, opens no file, and is not
for a running robot: its lists grow with time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from auras_ros.clock import SchedulerClock
from auras_ros.device import Span
from auras_ros.pipeline.live import Frame
from auras_ros.pipeline.request import NoiseTape

NS_PER_US = 1000
PROCESS = 1  # the only process of a trace
FRAMES = 0  # the row of the frame marks; lanes follow


class FrameMark(NamedTuple):
    """A frame's boundaries on the executor's clock. Perception of its own (dec) counts no frames and leaves no mark."""

    worker: str
    number: int
    start_ns: int
    end_ns: int


class RequestMark(NamedTuple):
    """A request's life. emitted_ns is 0 if it was dropped or is still in flight."""

    number: int
    admitted_ns: int
    emitted_ns: int
    stage_ns: tuple[int, ...]  # when each of its generation stages began; empty until it is emitted


class Recording:
    """Frames and requests of one executor: `noise` records what is admitted, `ended` what is over."""

    def __init__(self, clock: SchedulerClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._frames: list[FrameMark] = []
        self._requests: dict[int, RequestMark] = {}

    def noise(self, noise: NoiseTape) -> NoiseTape:
        """The same noise, recorded: it is drawn exactly once a request, at admission (rule 7 of docs/pipeline.md)."""

        def watched(request: int) -> Tensor:
            with self._lock:
                self._requests[request] = RequestMark(request, self._clock.now_ns(), 0, ())
            return noise(request)

        return watched

    def ended(self, frame: Frame) -> None:
        """Record a frame, and the chunks that came of it (`Live`'s observer)."""
        with self._lock:
            if frame.number is not None:
                self._frames.append(FrameMark(frame.worker, frame.number, frame.began_ns, frame.ran_ns))
            for each in () if frame.emission is None else frame.emission.every:
                mark = self._requests[each.request]
                self._requests[each.request] = mark._replace(emitted_ns=frame.ended_ns, stage_ns=each.stage_ns)

    def clear(self) -> None:
        """Forget everything, as after a warm-up (rule 10 of docs/pipeline.md)."""
        with self._lock:
            self._frames.clear()
            self._requests.clear()

    def frames(self) -> list[FrameMark]:
        """In the order of their starts."""
        with self._lock:
            return sorted(self._frames, key=lambda frame: frame.start_ns)

    def requests(self) -> list[RequestMark]:
        """In the order of their numbers, which is that of their admission."""
        with self._lock:
            return sorted(self._requests.values())


def chrome_trace(spans: Sequence[Span], recording: Recording, about: Mapping[str, object]) -> dict[str, Any]:
    """The trace as one JSON object: one row for each lane, in the order of first use.

    Stages are complete events, frames instant events, requests asynchronous ones, and a counter shows how many are in
    flight. Times count from the first event. about: strings and numbers for the reader.
    """
    frames, requests = recording.frames(), recording.requests()
    rows = {lane: row for row, lane in enumerate(dict.fromkeys(span.lane for span in spans), FRAMES + 1)}
    times = [span.start_ns for span in spans] + [frame.start_ns for frame in frames]
    zero_ns = min([*times, *(request.admitted_ns for request in requests)], default=0)
    events = [
        *_names({"frames": FRAMES, **rows}),
        *sorted(
            [
                *(_stage(span, rows[span.lane], zero_ns) for span in spans),
                *(_frame(frame, zero_ns) for frame in frames),
                *_requests(requests, zero_ns),
                *_in_flight(requests, zero_ns),
            ],
            key=lambda event: event["ts"],
        ),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about)}


def _event(kind: str, name: str, row: int, at_ns: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": kind, "pid": PROCESS, "tid": row, "ts": at_ns / NS_PER_US, **more}


def _names(rows: Mapping[str, int]) -> list[dict[str, Any]]:
    named = [_event("M", "process_name", FRAMES, 0, args={"name": "auras"})]
    for lane, row in rows.items():
        named.append(_event("M", "thread_name", row, 0, args={"name": lane}))
        named.append(_event("M", "thread_sort_index", row, 0, args={"sort_index": row}))
    return named


def _stage(span: Span, row: int, zero_ns: int) -> dict[str, Any]:
    duration_us = (span.end_ns - span.start_ns) / NS_PER_US
    return _event("X", span.stage, row, span.start_ns - zero_ns, dur=duration_us, cat="stage")


def _frame(frame: FrameMark, zero_ns: int) -> dict[str, Any]:
    args = {"frame": frame.number, "worker": frame.worker}
    return _event("i", f"frame {frame.number}", FRAMES, frame.start_ns - zero_ns, s="p", cat="frame", args=args)


def _requests(requests: Iterable[RequestMark], zero_ns: int) -> list[dict[str, Any]]:
    """One bar for each request; the marks in it are the starts of its stages."""
    events = []
    for request in requests:
        same = {"cat": "request", "id": request.number}
        name = f"request {request.number}"
        events.append(_event("b", name, FRAMES, request.admitted_ns - zero_ns, **same))
        if request.emitted_ns:
            events += [
                _event("n", f"stage {stage}", FRAMES, at_ns - zero_ns, **same)
                for stage, at_ns in enumerate(request.stage_ns, 1)
            ]
            events.append(_event("e", name, FRAMES, request.emitted_ns - zero_ns, **same))
    return events


def _in_flight(requests: Iterable[RequestMark], zero_ns: int) -> list[dict[str, Any]]:
    changes = [(request.admitted_ns, 1) for request in requests]
    changes += [(request.emitted_ns, -1) for request in requests if request.emitted_ns]
    events, count = [], 0
    for at_ns, change in sorted(changes):
        count += change
        events.append(_event("C", "requests in flight", FRAMES, at_ns - zero_ns, args={"requests": count}))
    return events
