"""Where a dispatch runs: which worker, on which part of the device."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from typing import Any, Protocol

from auras_ros.device.lane import Device
from auras_ros.device.partition import Partitions
from auras_ros.engine.scheduler import Dispatch, Stage
from auras_ros.engine.workers import Outcome, StageWorker

Place = tuple[Stage, int | None]
"""A stage, and the split of the device (`Dispatch.split`)."""
ForwardLog = list[tuple[Dispatch, int, int]]
"""Forwards that have ended: when each began and ended, ns. `SimulatedForwards` has one too."""


class StageForwards(Protocol):
    """At most one forward of a stage runs at a time."""

    def submit(self, dispatch: Dispatch) -> Future[Outcome]:
        """Starts it, or runs it before it returns."""
        ...

    def close(self) -> None: ...


class InlineExecutor(Executor):
    """Runs in the caller's thread, before `submit` returns."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  (raised again by whoever reads the result)
            future.set_exception(error)
        return future


class PlacedForwards:
    """Each stage's worker, run by the executor of the stage and the split. A change of the split is the choice of
    another executor, which was prepared before (Nova III-D: calibrated before each forward)."""

    def __init__(
        self,
        workers: dict[Stage, StageWorker],
        executors: Mapping[Place, Executor],
        partitions: Partitions | None = None,
        device: Device | None = None,
        log: ForwardLog | None = None,
    ) -> None:
        """partitions: the executors' owner, if they have one. device: closed at the end. log: is given every forward,
        as the thread that ran it timed it."""
        self.workers, self._executors, self._partitions, self._device = workers, executors, partitions, device
        self._log = log

    def submit(self, dispatch: Dispatch) -> Future[Outcome]:
        run = self.workers[dispatch.stage] if self._log is None else self._logged
        return self._executors[dispatch.stage, dispatch.split].submit(run, dispatch)

    def close(self) -> None:
        if self._partitions is not None:
            self._partitions.close()
        else:
            for each in self._executors.values():
                each.shutdown()
        if self._device is not None:
            self._device.close()

    def _logged(self, dispatch: Dispatch) -> Outcome:
        assert self._log is not None
        began_ns = time.monotonic_ns()
        outcome = self.workers[dispatch.stage](dispatch)
        self._log.append((dispatch, began_ns, time.monotonic_ns()))
        return outcome
