"""Lanes on one CUDA GPU: streams that replay captured graphs. torch.cuda is not used before the constructor.

Graphs of one lane share a memory pool, and each lane has its own: a graph's temporaries lie in its pool, so two graphs
that replay side by side must not share one. Within a lane any order of replays is safe because nothing that a stage
allocates is read after it (`lane` requires this of every stage).

A partition of the GPU gives `lane` a stream of its own (cuda_partition.py). A stage belongs to the lane that it was
captured for, so each partition has its own graphs.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from auras_ros.clock import MonotonicClock
from auras_ros.device.base import LanedDevice
from auras_ros.device.cuda_lane import CudaLane, CudaStage
from auras_ros.device.cuda_time import HostScale
from auras_ros.device.lane import DeviceError, Lane, Stage
from auras_ros.device.spans import Spans
from auras_ros.device.uncaptured import Reasons, listening

if TYPE_CHECKING:
    import torch

_CAPTURING = threading.Lock()  # CUDA's libraries and torch's allocator allow one capture at a time in a process
POOLED_STREAMS = 32  # torch's pool of streams; beyond it torch returns the same ones again
WARM_UP_RUNS = 3  # lazy initialisation and autotuning must be over before a capture


def require_cuda() -> None:
    """Raises DeviceError if torch has no CUDA GPU; the message names what is missing."""
    import torch

    if not torch.backends.cuda.is_built():
        raise DeviceError(f"device 'cuda': this torch ({torch.__version__}) is built without CUDA")
    if not torch.cuda.is_available():
        raise DeviceError(
            f"device 'cuda': torch {torch.__version__} (CUDA {torch.version.cuda}) finds no usable GPU or driver"
        )


class CudaDevice(LanedDevice[CudaLane]):
    """GPU number `index`. With `spans` every replay adds one, at the latest on `collect` or `close`."""

    def __init__(self, spans: Spans | None = None, index: int = 0) -> None:
        require_cuda()
        import torch

        super().__init__(torch.device("cuda", index), spans)
        self._torch, self._pooled = torch, 0
        self._scale = None if spans is None else HostScale(self.tensors, MonotonicClock())

    def lane(
        self,
        name: str,
        cores: Sequence[int] | None = None,
        threads: int | None = None,
        stream: torch.cuda.Stream | None = None,
        uncaptured: str = "",
    ) -> CudaLane:
        """A lane on a stream of its own, or on `stream` (a partition's). Streams always run side by side. uncaptured:
        why no stage of this lane may be captured. `cores` and `threads` are for CPU devices and ignored here, so that
        an executor can ask every device for the same lanes.

        Warns beyond POOLED_STREAMS lanes: torch has no more streams, and lanes that share one run one after another.
        """
        self._refuse_if_closed(name)
        if stream is None:
            stream = self._pooled_stream(name)
        self._lanes.append(CudaLane(name, stream, self._failures, self._spans, self._scale, uncaptured))
        return self._lanes[-1]

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        """Warm `body` up and capture it on the lane's stream; it runs `WARM_UP_RUNS` times on the buffers' values. A
        body that calls `cannot_capture` runs once now, and again at every launch.

        Raises DeviceError, naming the stage, if it fails or does what a graph cannot hold (waiting for the GPU,
        reading a value back). Before torch 2.12 a failed capture corrupts the allocator's state: restart the process.
        """
        own = self._own(name, lane)
        with _CAPTURING:
            return self._capture(name, body, own)

    def collect(self) -> None:
        """Write the spans of launches that have ended; never waits."""
        for lane in self._lanes:
            lane.collect(wait=False)

    def _pooled_stream(self, lane: str) -> torch.cuda.Stream:
        if self._pooled == POOLED_STREAMS:
            what = f"{self.tensors}: lane {lane!r} is one more than the {POOLED_STREAMS} streams that torch has"
            warnings.warn(f"{what}: it shares one with another lane, and they take turns", RuntimeWarning, stacklevel=3)
        self._pooled += 1
        made: torch.cuda.Stream = self._torch.cuda.Stream(self.tensors)
        return made

    def _capture(self, name: str, body: Callable[[], None], own: CudaLane) -> CudaStage:
        try:
            said = self._warm_up(body, own)
        except Exception as error:
            raise DeviceError(f"stage {name!r} failed in its warm-up on {self.tensors}: {error}") from error
        if said:
            self.uncaptured[name] = said
            return CudaStage(name, self._torch.no_grad()(body), own, captured=False)
        reasons: list[Exception] = []  # ending a failed capture raises a less specific error of its own
        try:
            return CudaStage(name, self._graph(body, own, reasons).replay, own)
        except Exception as error:
            own.renew_pool()  # the failed capture's pool is in an unknown state
            raise DeviceError(f"stage {name!r} cannot be captured: {(reasons or [error])[0]}") from error

    def _warm_up(self, body: Callable[[], None], lane: CudaLane) -> Reasons:
        """The body's reasons why it cannot be captured; usually none."""
        cuda = self._torch.cuda
        lane.stream.wait_stream(cuda.current_stream(self.tensors))
        with cuda.stream(lane.stream), self._torch.no_grad(), listening() as said:
            for _ in range(WARM_UP_RUNS):
                body()
                if said:
                    break
        lane.stream.synchronize()
        return (*said, lane.uncaptured) if lane.uncaptured else tuple(said)

    def _graph(self, body: Callable[[], None], lane: CudaLane, reasons: list[Exception]) -> torch.cuda.CUDAGraph:
        """`thread_local`: what other threads do on the GPU meanwhile does not break the capture."""
        cuda = self._torch.cuda
        graph: torch.cuda.CUDAGraph = cuda.CUDAGraph()
        # torch's graph context does not restore the current stream when a capture fails; the outer context does.
        with (
            cuda.stream(cuda.current_stream(self.tensors)),
            self._torch.no_grad(),
            cuda.graph(graph, pool=lane.pool, stream=lane.stream, capture_error_mode="thread_local"),
        ):
            try:
                body()
            except Exception as error:
                reasons.append(error)
                raise
        return graph
