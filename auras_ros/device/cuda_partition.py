"""Partitions of a GPU: SMs. A part has streams of its own, one for each name: the executor's thread puts its work on
it, and so do the lanes of this name.

A graph belongs to the green context of the stream that it was captured on, so a stage is captured once for each part. A
kernel whose grid has a block for each SM of the device ("persistent") computes the same in a part, but its last blocks
wait for the first ones: such grids are to be sized by `Partition.units`. None of this has run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from auras_ros.device.cuda import CudaDevice
from auras_ros.device.cuda_driver import CudaDriver, Share
from auras_ros.device.cuda_lane import CudaLane
from auras_ros.device.gpu import owning
from auras_ros.device.green_context import LEAST_VERSION, GreenContexts
from auras_ros.device.lane import Lane
from auras_ros.device.partition import DevicePartition, PreparedPartitions, TwoParts
from auras_ros.device.smctrl import StreamMasks

if TYPE_CHECKING:
    import torch


SM_SIZES = (8, 16, 24, 32, 40, 48, 64)


class CudaPartitions(PreparedPartitions):
    """The SMs of one GPU. Close it before its device, and release the stages that were captured for it first."""

    def __init__(self, device: CudaDevice, sizes: Sequence[int] | None, owner: str = "engine") -> None:
        """sizes: SMs of the first part; None: those of SM_SIZES that leave as many as the smallest has. The driver
        rounds them up: `self.sizes` has those that it gave, each once.

        Raises DeviceError for a size that leaves nothing to one of the parts, if this process has divided the GPU
        already (the message names who did), and if the driver cannot divide it.
        """
        self._device, self._lanes, self._held = device, list[CudaLane](), ExitStack()
        try:
            self._held.enter_context(owning(device.tensors.index, owner))
            driver = CudaDriver(device.tensors, self._held)
            sms = GreenContexts(driver) if driver.version >= LEAST_VERSION else StreamMasks(driver)
            if sizes is None:
                sizes = [size for size in SM_SIZES if size <= sms.units - SM_SIZES[0]]
            splits = dict[int, TwoParts]()
            for first, second in map(sms.split, sizes):
                if first.units not in splits:
                    splits[first.units] = TwoParts(
                        self._part(f"first {first.units} of {sms.units} SMs", first),
                        self._part(f"second {second.units} of {sms.units} SMs", second),
                    )
            whole = self._part(f"{sms.units} SMs", Share(sms.units, lambda: self._torch_stream))
        except BaseException:
            self._held.close()
            raise
        super().__init__(whole, splits)

    def close(self) -> None:
        """Wait for what was launched, then destroy streams and contexts. Raises DeviceError if the driver fails."""
        super().close()
        for lane in self._lanes:
            lane.close()
        self._held.close()

    def _part(self, name: str, share: Share) -> DevicePartition:
        new, streams = share.open(), dict[str, "torch.cuda.Stream"]()

        def stream_of(work: str) -> torch.cuda.Stream:
            if work not in streams:
                streams[work] = new()
            return streams[work]

        def open_lane(work: str, lane: str) -> Lane:
            self._lanes.append(self._device.lane(lane, stream=stream_of(work), uncaptured=share.uncaptured))
            return self._lanes[-1]

        return DevicePartition(name, share.units, lambda work: _thread_on(stream_of(work), work), open_lane)

    def _torch_stream(self) -> torch.cuda.Stream:
        import torch

        return torch.cuda.Stream(self._device.tensors)


def _thread_on(stream: torch.cuda.Stream, name: str) -> Executor:
    """A thread whose current stream this is."""
    import torch

    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    executor.submit(torch.cuda.set_stream, stream).result()
    return executor
