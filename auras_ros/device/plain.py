"""A stage that is a plain call: what the CPU and the null device have instead of a captured graph."""

from __future__ import annotations

import time
from collections.abc import Callable

from auras_ros.device.lane import DeviceError, Lane, Stage
from auras_ros.device.spans import Spans
from auras_ros.device.uncaptured import Reasons, listening


class PlainStage:
    """`body` with a name. It does not run at capture, so the buffers are unchanged. Whether it calls `cannot_capture`
    is known after its first run, and noted in the device's `uncaptured`."""

    __slots__ = ("_no_grad", "_run_before", "_uncaptured", "body", "captured", "lane", "name")

    def __init__(
        self, name: str, body: Callable[[], None], lane: Lane, uncaptured: dict[str, Reasons] | None = None
    ) -> None:
        from torch import no_grad

        self.name, self.body, self.lane = name, body, lane
        self.captured, self._run_before = True, False
        self._uncaptured = {} if uncaptured is None else uncaptured
        self._no_grad = no_grad

    def run(self) -> None:
        """Without autograd: it is switched per thread, so a thread lane would record what an inline lane does not."""
        with self._no_grad():
            if self._run_before:
                self.body()
            else:
                self._first_run()

    def _first_run(self) -> None:
        with listening() as reasons:
            self.body()
        self._run_before = True
        if reasons:
            self.captured, self._uncaptured[self.name] = False, tuple(reasons)

    def run_timed(self, spans: Spans | None) -> None:
        """Run and write the span, even if the run raises."""
        if spans is None:
            return self.run()
        start_ns = time.monotonic_ns()
        try:
            self.run()
        finally:
            spans.add(self.lane.name, self.name, start_ns, time.monotonic_ns())


def plain(stage: Stage, lane: Lane) -> PlainStage:
    """`stage`, checked to be this lane's. Raises DeviceError if it was captured for another lane, as a graph could not
    run there."""
    if not isinstance(stage, PlainStage) or stage.lane is not lane:
        raise DeviceError(f"stage {stage.name!r} was not captured for lane {lane.name!r}")
    return stage
