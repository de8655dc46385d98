"""A stage that is a plain call: what the CPU has instead of a captured graph, and the tests' null device."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from auras_ros.device.lane import DeviceError, Lane, Stage
from auras_ros.device.spans import Spans
from auras_ros.device.uncaptured import Reasons, listening


class PlainStage:
    """`run` is the body itself, without autograd: that is switched per thread, so a thread lane would record what an
    inline lane does not. It does not run at capture, so the buffers are unchanged. Whether it calls `cannot_capture` is
    known after its first run, and noted in the device's `uncaptured`. With `spans` every run adds one, even if it
    raises."""

    __slots__ = ("_body", "_uncaptured", "captured", "lane", "name", "run")

    def __init__(
        self,
        name: str,
        body: Callable[[], None],
        lane: Lane,
        uncaptured: dict[str, Reasons] | None = None,
        spans: Spans | None = None,
    ) -> None:
        from torch import no_grad

        self.name, self.lane, self.captured = name, lane, True
        self._uncaptured = {} if uncaptured is None else uncaptured
        without_autograd = no_grad()(body)
        self._body = without_autograd if spans is None else partial(self._timed, without_autograd, spans)
        self.run: Callable[[], None] = self._first_run

    def _first_run(self) -> None:
        with listening() as reasons:
            self._body()
        self.run = self._body
        if reasons:
            self.captured, self._uncaptured[self.name] = False, tuple(reasons)

    def _timed(self, body: Callable[[], None], spans: Spans) -> None:
        start_ns = time.monotonic_ns()
        try:
            body()
        finally:
            spans.add(self.lane.name, self.name, start_ns, time.monotonic_ns())


def plain(stage: Stage, lane: Lane) -> PlainStage:
    """`stage`, checked to be this lane's. Raises DeviceError if it was captured for another lane, as a graph could not
    run there."""
    if not isinstance(stage, PlainStage) or stage.lane is not lane:
        raise DeviceError(f"stage {stage.name!r} was not captured for lane {lane.name!r}")
    return stage
