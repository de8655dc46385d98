"""libsmctrl (Bakita and Anderson, RTAS 2023): streams with a mask of the SMs that their kernels may use.

For drivers older than green contexts. The library writes into the driver's own structures, at offsets that it knows for
some versions of the driver; with another one it may end the process. So it is asked for nothing unless the version is
among those. Nobody says whether a graph keeps the mask of the stream that it was captured on, so stages on such streams
are not captured. It has never run here: there was no GPU.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from functools import partial
from typing import TYPE_CHECKING

from auras_ros.device.cuda_driver import NON_BLOCKING, CudaDriver, Share, dotted, leaves_nothing
from auras_ros.device.lane import DeviceError

if TYPE_CHECKING:
    import torch

KNOWN = (11000, 12040)  # first and last version with offsets for x86-64, of those without streams of green contexts
MOST_TPCS = 64  # bits of a mask; each disables a pair of SMs ("TPC")
REASON = "it is not known whether a graph keeps libsmctrl's mask of its stream"


class StreamMasks:
    """The SMs of one GPU, for a driver without green contexts."""

    def __init__(self, driver: CudaDriver) -> None:
        """Raises DeviceError naming what is missing."""
        import torch

        lacks = f"{driver.device}: a driver for CUDA {dotted(driver.version)} has no green contexts"
        if not KNOWN[0] <= driver.version <= KNOWN[1] or platform.machine() != "x86_64":
            known = f"CUDA {dotted(KNOWN[0])} to {dotted(KNOWN[1])} on x86-64"
            raise DeviceError(f"{lacks}, and libsmctrl's offsets are those of {known}")
        found = ctypes.util.find_library("smctrl")
        if found is None:
            raise DeviceError(f"{lacks}, and there is no libsmctrl")
        self._driver, self._library, tpcs = driver, ctypes.CDLL(found), ctypes.c_uint32()
        failed = self._library.libsmctrl_get_tpc_info_cuda(ctypes.byref(tpcs), driver.device.index)
        self.units, self._tpcs = torch.cuda.get_device_properties(driver.device).multi_processor_count, tpcs.value
        if failed or not 2 <= self._tpcs <= MOST_TPCS:
            raise DeviceError(f"{lacks}, and libsmctrl masks 2 to {MOST_TPCS} pairs of SMs, not {self._tpcs}")
        self._library.libsmctrl_set_stream_mask.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self._library.libsmctrl_set_stream_mask.restype = None
        self._context = driver.call("cuDevicePrimaryCtxRetain", driver.gpu)  # torch's own
        driver.held.callback(driver.call, "cuDevicePrimaryCtxRelease", driver.gpu)

    def split(self, wanted: int) -> tuple[Share, Share]:
        """`wanted` SMs, rounded up to pairs, and all others. Raises DeviceError if nothing is left to one of them."""
        pair = self.units // self._tpcs
        count = -(-wanted // pair)
        if not 0 < count < self._tpcs:
            raise leaves_nothing(self._driver.device, wanted, self.units)
        enabled = (1 << count) - 1
        return self._share(count * pair, enabled), self._share(self.units - count * pair, ~enabled)

    def _share(self, units: int, enabled: int) -> Share:
        return Share(units, lambda: partial(self._stream, ~enabled % 2**64), REASON)

    def _stream(self, disabled: int) -> torch.cuda.Stream:
        self._driver.call("cuCtxSetCurrent", self._context)  # of this thread, as torch does at its first call
        made = self._driver.stream("cuStreamCreate", NON_BLOCKING)
        self._library.libsmctrl_set_stream_mask(made.cuda_stream, disabled)
        return made
