"""CUDA's green contexts: some SMs of a GPU, and streams whose kernels run on these alone.

All splits are made from the whole device, each into a group and the remainder. `cuDevSmResourceSplitByCount` is used,
which every driver with green contexts has; it makes groups of equal size, so the remainder is the second part. The
driver rounds the size up (to 8 SMs on compute capability 9, to 2 or 4 before), so the counts that it returns are the
partition's. It promises less for the remainder than for the group: clusters of thread blocks may be smaller there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from auras_ros.device.cuda_driver import NON_BLOCKING, CudaDriver, Share, leaves_nothing

LEAST_VERSION = 12050  # the first one with `cuGreenCtxStreamCreate`
DEFAULT_STREAM = 1  # drivers before CUDA 13 require this flag


class GreenContexts:
    """The SMs of one GPU, for a driver of LEAST_VERSION or later."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._sm = driver.names.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        self._all = driver.call("cuDeviceGetDevResource", driver.gpu, self._sm)
        self.units = int(self._all.sm.smCount)

    def split(self, wanted: int) -> tuple[Share, Share]:
        """`wanted` SMs, rounded up, and all others. Raises DeviceError if nothing is left to one of the two."""
        count = self._rounded_up(wanted)
        if wanted > 0 and count < self.units:
            groups, made, rest = self._driver.call("cuDevSmResourceSplitByCount", 1, self._all, 0, count)
            if made == 1 and rest.type == self._sm and rest.sm.smCount:
                return self._share(groups[0]), self._share(rest)
        raise leaves_nothing(self._driver.device, wanted, self.units)

    def _share(self, resource: Any) -> Share:
        return Share(int(resource.sm.smCount), partial(self._open, resource))

    def _open(self, resource: Any) -> Any:
        """Makes the context; returns what makes streams of it."""
        driver = self._driver
        description = driver.call("cuDevResourceGenerateDesc", [resource], 1)
        context = driver.call("cuGreenCtxCreate", description, driver.gpu, DEFAULT_STREAM)
        driver.held.callback(driver.call, "cuGreenCtxDestroy", context)
        return partial(driver.stream, "cuGreenCtxStreamCreate", context, NON_BLOCKING, 0)

    def _rounded_up(self, wanted: int) -> int:
        """As the driver says that it will. Drivers before CUDA 13 do not say, and round by themselves."""
        least = getattr(self._all.sm, "minSmPartitionSize", 0)
        step = getattr(self._all.sm, "smCoscheduledAlignment", 0) or 1
        return max(least, -(-wanted // step) * step)
